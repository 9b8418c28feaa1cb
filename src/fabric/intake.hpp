// How much a server has to do for all its clients, and how many requests without an answer each of
// them may have while that is much: its credit, which each answer carries. So what a home cannot
// take in waits at its sender, and no client has more of the queue than the others.
//
// Pure: the time is given by the caller. ClientTable::mu_ guards it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/base/clock.hpp"
#include "core/base/fault_point.hpp"

namespace cmi::fabric {

class Intake {
 public:
  // The home is behind where so many requests have no answer, or were taken in since there was
  // nothing to do, and for kStays after that.
  static constexpr size_t kBehind = 256;
  static constexpr Nanos kStays = 100 * kMilli;
  // Then so many go round among the clients, and each has these at least: fewer would leave the
  // wire idle.
  static constexpr size_t kTogether = 512, kLeast = 4;

  // What is kept of each client.
  struct OfClient {
    size_t open = 0;
    uint64_t spell = 0;  // of work, in which it asked for something last
  };

  // A request has come, at `t`.
  void took(OfClient& client, Nanos t) {
    ++taken_;
    if (client.spell != spell_) ++asking_;
    client.spell = spell_;
    if (is_much()) behind_until_ = t + kStays;
  }
  // So many requests of the client have no answer now.
  void now_open(OfClient& client, size_t open) {
    if (client.open == 0 && open != 0) ++waiting_;
    if (client.open != 0 && open == 0) --waiting_;
    open_ += open - client.open;
    client.open = open;
  }
  // There is nothing to do at the moment.
  void found_nothing() {
    taken_ = asking_ = 0;
    ++spell_;
  }
  bool has_taken() const { return taken_ != 0; }

  // How many requests without an answer a client may have; 0: no bound but the link's own.
  uint64_t credit(Nanos t) const {
    if (t >= behind_until_) return 0;
    const size_t clients = std::max<size_t>({asking_, waiting_, 1});
    return std::max(together() / clients, kLeast);
  }

 private:
  bool is_much() const {
    return std::max(open_, taken_) >= (fault_point_fails("home_behind_soon") ? 16 : kBehind);
  }
  static size_t together() { return fault_point_fails("home_behind_soon") ? 16 : kTogether; }

  size_t open_ = 0;     // without an answer
  size_t waiting_ = 0;  // clients that have some of those
  size_t taken_ = 0;    // in this spell of work
  size_t asking_ = 0;   // clients that have asked for those
  uint64_t spell_ = 1;
  Nanos behind_until_ = 0;
};

}  // namespace cmi::fabric
