// The descriptors of a table of sockets, for a forked child to close: it must not keep a port that
// its parent has given back, and can look at no table that another thread of the parent may have
// been changing.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>

namespace cmi {

template <size_t kMost>
class OpenSockets {
 public:
  // Any thread. False: there are too many.
  bool add(int fd) {
    for (auto& slot : slots_) {
      int free = 0;
      if (slot.compare_exchange_strong(free, fd + 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  // Before it is closed.
  void remove(int fd) {
    for (auto& slot : slots_) {
      if (slot.load(std::memory_order_relaxed) == fd + 1) slot.store(0, std::memory_order_relaxed);
    }
  }
  // In a forked child, which has one thread.
  void close_in_child() {
    for (auto& slot : slots_) {
      if (const int open = slot.load(std::memory_order_relaxed); open != 0) ::close(open - 1);
    }
  }

 private:
  std::array<std::atomic<int>, kMost> slots_{};  // descriptor + 1
};

}  // namespace cmi
