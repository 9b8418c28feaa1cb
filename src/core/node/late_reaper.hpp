// Cleans up after the dead of all the user's nodes where memory was missing and nobody may wait: a
// thread of its own, since the kernel frees a file's memory inside unlink, gigabytes in seconds.
// It lives while there is something to do.
// Threads: want() any, the fault handler too; begin_if_wanted() one alone, the service thread;
// stop() and the end after that one has ended.
#pragma once

#include <atomic>
#include <thread>

#include "core/node/seat.hpp"

namespace cmi::node {

class LateReaper {
 public:
  explicit LateReaper(const Seat& seat) : seat_(seat) {}
  ~LateReaper() { stop(); }
  LateReaper(const LateReaper&) = delete;
  LateReaper& operator=(const LateReaper&) = delete;

  void want() { wanted_.store(true, std::memory_order_relaxed); }
  void begin_if_wanted();  // does not wait for what it begins
  void stop();             // waits for what has begun
  void forget_in_child();  // the thread is the parent's

 private:
  void run();

  const Seat& seat_;
  std::atomic<bool> wanted_{false};   // one word, ordered with nothing: a wish that is seen later
  std::atomic<bool> running_{false};  // the thread's last act is to clear it
  std::thread thread_;                // joinable also when it has come to its end
};

}  // namespace cmi::node
