// What telling those who hold a page takes at least: raw messages from the publisher to the home,
// from there to all holders at once, from them back to the home, and from there to the publisher.
// The same processes on the same CPUs as the library's publication, in each one thread, which polls
// and yields when nothing has come: on fewer CPUs than processes they could not go on otherwise.
#pragma once

#include <functional>
#include <optional>

#include "raw.hpp"
#include "trap.hpp"

namespace bench {

// What a holder does when it is told, before it answers.
enum class Told : uint32_t {
  kNothing,
  kZap,   // takes a page out of its view
  kRead,  // reads 4 KiB from the home; Control::seen_at says when it has them
  kWake,  // takes the page that its second thread loads again and again out of the view; its
          // handler reads it anew; likewise, and Control::seen_value is the number of the message
};

// The home's side; in its raw thread.
class RelayHome {
 public:
  RelayHome(Control& control, RawEndpoint& endpoint, const fi_addr_t& publisher)
      : control_(control), endpoint_(endpoint), publisher_(publisher) {}
  void step();

 private:
  Control& control_;
  RawEndpoint& endpoint_;
  const fi_addr_t& publisher_;
  std::optional<fi_addr_t> holders_[kOthers];
  uint64_t number_ = 0;
  uint32_t waiting_ = 0;  // answers that are missing
};

// A holder's side; in the thread that takes commands.
class RelayHolder {
 public:
  RelayHolder(Control& control, int role, const std::string& provider);
  // Until Control::stop_relay. `spinning`: a second thread loads page 0 all the time, yielding.
  void serve(bool spinning);

 private:
  void be_told(Told what, uint64_t number);
  void spin();

  Control& control_;
  RawEndpoint endpoint_, reader_;  // reader_ belongs to who faults
  fi_addr_t home_, home_of_reader_;
  Trap trap_;
  std::vector<std::byte> buffer_;
  size_t next_ = 0;                    // page to be zapped
  std::atomic<uint64_t> told_{0};      // number of the message that took page 0
  uint64_t fetched_ = 0, wanted_ = 0;  // of who faults
  std::atomic<bool> stop_spinning_{false};
};

// The publisher's side. Holders serve from begin() to end().
class Relay {
 public:
  Relay(Control& control, const Raw& raw, int holders, bool spinning = false);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  void begin();
  void end();
  void once(Told what, const std::function<void()>& meanwhile = {});
  void await_seen() const;  // until the spinning thread has seen what kWake told

 private:
  Control& control_;
  const Raw& raw_;
  const int holders_;
  const bool spinning_;
  bool serving_ = false;
  uint64_t number_;
};

}  // namespace bench
