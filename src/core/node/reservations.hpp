// Memory reservations: memory that is really there, held until segments are made within it. They
// outlive their makers, and keep the node's folder. What segments give back they hold again.
// A context that has become another user since it joined has no more to do with them (kPerm).
// Threads: any; each call takes the exclusive lock.
#pragma once

#include <vector>

#include "core/base/status.hpp"
#include "core/node/seat.hpp"

namespace cmi::node {

class Reservations {
 public:
  explicit Reservations(const Seat& seat) : seat_(seat) {}

  // The key. kNoMem: there is not so much. A size that is no whole number of pages is raised to
  // one.
  Result<uint64_t> make(uint64_t asked);
  // kInval: no such reservation, or less than is in use.
  Status resize(uint64_t key, uint64_t asked);
  // Its segments stay, what it held is free.
  Status remove(uint64_t key);
  Result<ReservationInfo> find(uint64_t key);
  std::vector<ReservationInfo> all();
  // After the last mapping of a deleted segment has gone: only then is its memory free to be held.
  void refill();

 private:
  Result<uint64_t> try_make(uint64_t asked);
  Status try_resize(uint64_t key, uint64_t asked);

  const Seat& seat_;
};

}  // namespace cmi::node
