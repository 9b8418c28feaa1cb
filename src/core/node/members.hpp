// The contexts of the node: how this one becomes a member and ceases to be one, and the others.
// Owns the life descriptor, whose lock says that this context lives. Invariant: the slot's state is
// `member` only while the life lock of that slot is held, or until a reaper finds it free.
// Threads: any; taking and leaving a slot is join()'s and ~Node()'s alone.
#pragma once

#include <functional>
#include <vector>

#include "core/base/fd.hpp"
#include "core/base/status.hpp"
#include "core/node/seat.hpp"

namespace cmi::node {

class Members {
 public:
  explicit Members(Seat& seat) : seat_(seat) {}

  bool alive(ContextSlot slot, ContextId id) const;  // false when another context sits there by now
  // The same as far as the registry says: a killed one stays a member until the next reap().
  bool member(ContextSlot slot, ContextId id) const;
  // Living member with this context id; kInval when there is none here.
  Result<ContextSlot> find(ContextId id) const;
  std::vector<ContextSlot> living() const;
  // Whether `is` holds for the id of some living member.
  bool any(const std::function<bool(const ContextId&)>& is) const;

  // Cleans up after dead contexts; also done by join. Returns how many were found.
  Result<int> reap();

  // Takes a free slot and its life lock. kNoMem: there is none.
  Status take_slot_locked(const Exclusive& lock);
  // From now on others see the member. Its bus is open.
  void publish_locked(const Exclusive& lock);
  // What take_slot_locked() took, of one that was not published.
  void abandon_slot_locked(const Exclusive& lock);
  // Ends the membership, if there is one, as if the process had died.
  void leave();
  void forget_in_child();

 private:
  Seat& seat_;
  Fd life_;  // a description of its own: it carries the life lock, and nothing else
  bool joined_ = false;
};

}  // namespace cmi::node
