// What telling those who hold a page takes at least: raw messages from the publisher to the home,
// from there to all sharers at once, and from them to the publisher.
// The same processes on the same CPUs as the library's invalidation round, in each one thread,
// which polls and yields when nothing has come: on fewer CPUs than processes they could not go on
// otherwise.
#pragma once

#include <functional>
#include <optional>

#include "raw.hpp"
#include "trap.hpp"

namespace bench {

// What a sharer does with a notification before it answers.
enum class NotifyOf : uint32_t {
  kNothing,
  kStore,  // stores the number of the message to a word
  kWake,   // to the one that its second thread loads again and again: Control::seen_at says when
           // that has seen it, and Control::seen_value is the number
};

// The home's side; in its raw thread.
class RelayHome {
 public:
  RelayHome(Control& control, RawEndpoint& endpoint) : control_(control), endpoint_(endpoint) {}
  void step();

 private:
  Control& control_;
  RawEndpoint& endpoint_;
  std::optional<fi_addr_t> sharers_[kOthers];
};

// A sharer's side; in the thread that takes commands.
class RelaySharer {
 public:
  RelaySharer(Control& control, int role, const std::string& provider);
  // Until Control::stop_relay. `spinning`: a second thread loads the word all the time, yielding.
  void serve(bool spinning);

 private:
  void on_notified(NotifyOf what, uint64_t number);
  void spin();

  Control& control_;
  RawEndpoint endpoint_;
  fi_addr_t publisher_;
  alignas(64) std::atomic<uint64_t> word_{0};
  alignas(64) std::atomic<bool> stop_spinning_{false};
};

// The publisher's side. Sharers serve from begin() to end().
class Relay {
 public:
  Relay(Control& control, const Raw& raw, int sharers, bool spinning = false);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  void begin();
  void end();
  void once(NotifyOf what, const std::function<void()>& meanwhile = {});
  void await_seen() const;  // until the spinning thread has seen what kWake told

 private:
  Control& control_;
  const Raw& raw_;
  const int sharers_;
  const bool spinning_;
  bool serving_ = false;
  uint64_t number_;
};

}  // namespace bench
