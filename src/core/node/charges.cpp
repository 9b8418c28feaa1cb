#include "core/node/charges.hpp"

#include <cmi.h>

#include <algorithm>
#include <optional>

#include "core/base/fault_point.hpp"
#include "core/node/machine_memory.hpp"
#include "core/node/other_nodes.hpp"
#include "core/node/reservation_slots.hpp"

namespace cmi::node {

namespace {
std::optional<SegmentWord> word_of(const Segment_shm& s, const Segment_shm* first) {
  const auto index = static_cast<uint32_t>(&s - first);
  return SegmentWord::unpack(s.state.load(std::memory_order_acquire), index);
}
}  // namespace

bool of_machine(SegmentKind kind, int32_t flags) {
  const bool large = kind == SegmentKind::kHome && (flags & CMI_SEG_LARGE_PAGES) != 0;
  return !large && (flags & CMI_SEG_NORESERVE) == 0;
}

uint64_t charged_by(std::span<const Segment_shm> segments,
                    std::span<const Reservation_shm> reservations, bool machine_alone) {
  uint64_t sum = 0;
  const auto add = [&sum](uint64_t bytes) {
    if (__builtin_add_overflow(sum, bytes, &sum)) sum = UINT64_MAX;
  };
  for (const Segment_shm& s : segments) {
    const auto word = word_of(s, segments.data());
    if (word && (!machine_alone || of_machine(word->kind, s.flags))) add(s.charged);
  }
  for (const Reservation_shm& rsv : reservations) {
    const uint64_t key = rsv.key.load(std::memory_order_acquire);
    if (key == 0) continue;
    uint64_t used = 0;
    for (const Segment_shm& s : segments) {
      if (word_of(s, segments.data())) used += std::min(charged_to(s, key), UINT64_MAX - used);
    }
    add(promised_rest(rsv.size, used));
  }
  return sum;
}

uint64_t charged_locked(Registry& r) {
  return charged_by({r.shm()->segments, r.segments_end()}, r.shm()->reservations, false);
}

Outside look_outside(const Registry& r, const Config& config) {
  if (config.machine == nullptr) return {};
  return {config.machine(), charged_of_others(r.folder())};
}

void look_again(const Config& config, Outside* outside) {
  if (outside->machine.total == UINT64_MAX && outside->machine.free == UINT64_MAX) return;
  outside->machine = config.machine();
}

uint64_t room_beside(Registry& r, const Outside& outside) {
  const MachineMemory& machine = outside.machine;
  if (machine.total == UINT64_MAX && machine.free == UINT64_MAX) return UINT64_MAX;
  const uint64_t most = most_of_all_nodes(machine);
  const uint64_t all =
      charged_by({r.shm()->segments, r.segments_end()}, r.shm()->reservations, true);
  const uint64_t rest = most - std::min(most, all);
  return std::min(rest - std::min(rest, outside.others), usable_of_free(machine));
}

const char* lacks_room_locked(Registry& r, const Config& config, const Outside& outside,
                              uint64_t bytes, uint64_t reservation) {
  if (Reservation_shm* rsv = reservation_locked(r, reservation); rsv != nullptr) {
    const uint64_t used = used_locked(r, reservation);
    bytes -= std::min(bytes, rsv->size - std::min(rsv->size, used));
    if (bytes == 0) return nullptr;
  }
  const uint64_t in_use = charged_locked(r), max = config.mem_max;
  if (in_use > max || bytes > max - in_use) return "the node's memory is used up";
  if (bytes != 0 && bytes > room_beside(r, outside)) {
    return "the machine has not so much memory left";
  }
  return nullptr;
}

// Step by step under the lock, so that no other member of the node takes what a reservation lets go
// of for this one, and nobody waits for gigabytes.
Status allocate(Registry& r, int fd, uint64_t from, uint64_t to, uint64_t reservation) {
  const uint64_t step = reservation != 0 ? uint64_t{4} << 20 : uint64_t{64} << 20;
  for (uint64_t at = from; at < to; at += step) {
    const uint64_t n = std::min(step, to - at);
    Exclusive lock(r.lock(), Deadline::in(kLockWait));
    if (!lock) return Status::kReconfig;
    if (reservation != 0) release_locked(r, lock, reservation, n);
    fault_point("node.allocate.released");
    if (Status s = allocate_file(fd, at, at + n); !ok(s)) return s;
    fault_point("node.allocate.taken");
  }
  return Status::kOk;
}

}  // namespace cmi::node
