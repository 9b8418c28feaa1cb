// What counts against mem_max, and memory for segments' files.
// Threads: any; what is called _locked under the exclusive lock.
#pragma once

#include <span>

#include "core/base/status.hpp"
#include "core/node/registry.hpp"

namespace cmi::node {

// Bytes that count against mem_max.
uint64_t charged_locked(Registry& r);
// The same of any registry, or (`machine_alone`) what of it is the machine's ordinary memory, and
// taken or promised: neither large pages, which lie apart, nor what is found or not when it is
// touched.
uint64_t charged_by(std::span<const Segment_shm> segments,
                    std::span<const Reservation_shm> reservations, bool machine_alone);
bool of_machine(SegmentKind kind, int32_t flags);

// What the machine has and the user's other nodes have taken of it. Unbounded until somebody looks,
// which reads files of /proc and all other registries: before the lock is taken.
struct Outside {
  MachineMemory machine;
  uint64_t others = 0;
};
Outside look_outside(const Registry& r, const Config& config);
// The machine once more, after the node's own dead have given memory back.
void look_again(const Config& config, Outside* outside);
// Bytes that the machine and the user's other nodes leave for more segments.
uint64_t room_beside(Registry& r, const Outside& outside);

// Whether so many more bytes may count, as far as the reservation does not have them: against
// mem_max, and against what is outside. Null: they may; else the reason.
const char* lacks_room_locked(Registry& r, const Config& config, const Outside& outside,
                              uint64_t bytes, uint64_t reservation = 0);
// Memory for a segment's file, out of its reservation as far as that holds any. Takes the lock.
Status allocate(Registry& r, int fd, uint64_t from, uint64_t to, uint64_t reservation);

}  // namespace cmi::node
