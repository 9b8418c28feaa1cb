// The reaper. Runs in join, in reap, at the end of a context and where a full table or a dead owner
// is met; always under the exclusive lock.
#include "core/node/reaper.hpp"

#include <unistd.h>

#include <bitset>

#include "core/base/fault_point.hpp"
#include "core/node/node.hpp"
#include "core/node/reservation_slots.hpp"

namespace cmi::node {

void delete_segment_locked(Registry& r, const Exclusive&, const SegmentWord& word) {
  fault_point("node.delete.before_unlink");
  unlinkat(r.folder().dir.get(), segment_file_name(word.id).text, 0);
  // Dies here: the slot still says making or removed, and the next reaper unlinks nothing and
  // frees.
  fault_point("node.delete.unlinked");
  r.shm()->segments[index_of(word.id)].state.store(0, std::memory_order_release);
  fault_point("node.delete.freed");
}

void retire_context_locked(Registry& r, const Exclusive& lock, uint32_t slot) {
  Registry_shm& shm = *r.shm();
  fault_point("node.retire.begin");
  for (uint32_t i = 0; i < r.segments_end(); ++i) {
    Word_shm& state = shm.segments[i].state;
    auto word = SegmentWord::unpack(state.load(std::memory_order_acquire), i);
    if (!word || word->owner != slot) continue;
    if (word->state == SegmentState::kMaking) {
      delete_segment_locked(r, lock, *word);
    } else if (word->state == SegmentState::kLive) {
      word->state = SegmentState::kRemoved;
      // The slot may be freed only when no live segment names it any more: another context in it
      // would own them. Dies here: the context slot is still taken, the next reaper goes on.
      state.store(word->pack(), std::memory_order_release);
      fault_point("node.retire.segment_marked");
    }
  }
  fault_point("node.retire.segments_done");
  for (uint32_t i = 0; i < r.attachments_end(); ++i) {
    auto word = AttachmentWord::unpack(shm.attachments[i].load(std::memory_order_acquire));
    if (!word || word->context != slot) continue;
    shm.attachments[i].store(0, std::memory_order_release);
    fault_point("node.retire.attachment_cleared");
  }
  unlinkat(r.folder().dir.get(), bus_file_name(slot).text, 0);
  fault_point("node.retire.socket_unlinked");
  // Nothing names the slot any more. Dies after: removed segments that nobody has attached wait for
  // the next reaper.
  shm.contexts[slot].state.store(kContextFree, std::memory_order_release);
  fault_point("node.retire.freed");
}

int reap_locked(Registry& r, const Exclusive& lock) {
  Registry_shm& shm = *r.shm();
  int dead = 0;
  for (uint32_t slot = 0; slot < kMaxContexts; ++slot) {
    uint64_t state = shm.contexts[slot].state.load(std::memory_order_acquire);
    if (state == kContextFree || (state == kContextMember && r.life_locked(slot))) continue;
    note(kFacCtrl, kInfo, "node: cleaning up after the context in slot {}, pid {}", slot,
         shm.contexts[slot].pid.load(std::memory_order_relaxed));
    retire_context_locked(r, lock, slot);
    ++dead;
  }
  // All members live now. What has no living owner or context cannot have been written by a member:
  // it is damage, and goes.
  std::bitset<kMaxSegments> attached;
  for (uint32_t i = 0; i < r.attachments_end(); ++i) {
    uint64_t raw = shm.attachments[i].load(std::memory_order_acquire);
    if (raw == 0) continue;
    auto word = AttachmentWord::unpack(raw);
    uint32_t index = word ? index_of(word->id) : 0;
    auto segment =
        SegmentWord::unpack(shm.segments[index].state.load(std::memory_order_acquire), index);
    if (word && r.member(word->context) && segment && segment->id == word->id) {
      attached.set(index);
    } else {
      shm.attachments[i].store(0, std::memory_order_release);
    }
  }
  for (uint32_t i = 0; i < r.segments_end(); ++i) {
    uint64_t raw = shm.segments[i].state.load(std::memory_order_acquire);
    if (raw == 0) continue;
    auto word = SegmentWord::unpack(raw, i);
    if (!word) {
      shm.segments[i].state.store(0, std::memory_order_release);
      continue;
    }
    bool orphan = word->state != SegmentState::kRemoved && !r.member(word->owner);
    if (!attached[i] && (orphan || word->state == SegmentState::kRemoved)) {
      delete_segment_locked(r, lock, *word);
    }
  }
  settle_reservations_locked(r, lock);
  return dead;
}

void sweep_locked(Registry& r, const Exclusive&, uint32_t own_slot) {
  struct Arg {
    Registry& r;
    uint32_t own_slot;
  } arg{r, own_slot};
  sweep_folder(
      r.folder(),
      [](void* p, char kind, uint32_t number) {
        Arg& a = *static_cast<Arg*>(p);
        if (kind == 'b') return number == a.own_slot || a.r.member(number);
        if (kind == 'r') {
          return number < kMaxReservations && a.r.shm()->reservations[number].key.load() != 0;
        }
        uint32_t i = number & (kMaxSegments - 1);
        auto word =
            SegmentWord::unpack(a.r.shm()->segments[i].state.load(std::memory_order_acquire), i);
        return word && static_cast<uint32_t>(word->id) == number;
      },
      &arg);
}

bool needed_locked(Registry& r, const Exclusive&) {
  if (any_reservation(r)) return true;
  for (uint32_t slot = 0; slot < kMaxContexts; ++slot) {
    if (r.member(slot)) return true;
  }
  return false;
}

void remove_folder_locked(Registry& r, const Exclusive&) {
  sweep_folder(
      r.folder(), [](void*, char, uint32_t) { return false; }, nullptr);
  remove_folder(r.folder());
}

Result<int> reap_folder(const Config& config, Nanos wait) {
  std::unique_ptr<Registry> registry;
  std::optional<Exclusive> lock;
  Status s =
      Registry::open_locked(config, Registry::Open::kExisting, Deadline::in(wait), registry, lock);
  if (!ok(s)) return s;
  if (!registry) {
    // A process that died between the two removals left the empty runtime folder.
    if (is_default_runtime_dir(config.runtime_dir)) rmdir(config.runtime_dir.c_str());
    return 0;
  }
  int dead = 0;
  if (registry->shm() != nullptr) {
    dead = reap_locked(*registry, *lock);
    sweep_locked(*registry, *lock);
    if (needed_locked(*registry, *lock)) return dead;
  }
  remove_folder_locked(*registry, *lock);
  return dead;
}

}  // namespace cmi::node
