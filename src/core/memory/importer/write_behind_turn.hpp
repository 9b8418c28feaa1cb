// Which thread that stores in order takes home what is behind it: one at a time, and none for a
// while after there was no room on the wire in time. Any thread, the fault handler too; no lock.
#pragma once

#include <atomic>

#include "core/base/clock.hpp"

namespace cmi::memory {

class WriteBehindTurn {
 public:
  // While it lives the turn is taken, where it was free; a thread that does not get it does
  // without.
  class Taken {
   public:
    explicit Taken(WriteBehindTurn& turn)
        : turn_(turn), mine_(!turn.taken_.exchange(true, std::memory_order_acquire)) {}
    ~Taken() {
      if (mine_) turn_.taken_.store(false, std::memory_order_release);
    }
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    bool mine() const { return mine_; }

   private:
    WriteBehindTurn& turn_;
    const bool mine_;
  };

  bool may_try(Nanos t) const { return t >= not_before_.load(std::memory_order_relaxed); }
  void no_room_before(Nanos t) { not_before_.store(t, std::memory_order_relaxed); }

 private:
  std::atomic<bool> taken_{false};
  std::atomic<Nanos> not_before_{0};
};

}  // namespace cmi::memory
