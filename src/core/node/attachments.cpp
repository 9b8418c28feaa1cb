#include "core/node/attachments.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/node/reaper.hpp"
#include "core/node/reservation_slots.hpp"

namespace cmi::node {

namespace {
std::optional<uint32_t> free_entry_locked(Registry& r) {
  for (uint32_t i = 0; i < kMaxAttachments; ++i) {
    if (r.shm()->attachments[i].load(std::memory_order_acquire) == 0) return i;
  }
  return std::nullopt;
}
}  // namespace

Result<Attachment> Attachments::attach(int32_t id) {
  Registry& r = *seat_.registry;
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  if (!lock) return Status::kReconfig;
  auto found = find_locked(r, lock, id);
  Living living(r);
  if (!found || found->word.state != SegmentState::kLive || !owner_alive(r, *found, living)) {
    return Status::kInval;
  }
  auto index = free_entry_locked(r);
  if (!index) {
    reap_locked(r, lock);
    index = free_entry_locked(r);
  }
  if (!index) {
    note(kFacSeg, kWarn, "node: all {} attachments are taken", kMaxAttachments);
    return Status::kNoMem;
  }
  if (*index >= r.attachments_end()) {
    r.shm()->header.attachments_high.store(*index + 1, std::memory_order_release);
  }
  fault_point("node.attach.before_store");
  // Dies after: an attachment of a dead context, which does not count and which a reaper clears.
  r.shm()->attachments[*index].store(AttachmentWord{id, seat_.slot}.pack(),
                                     std::memory_order_release);
  fault_point("node.attach.stored");
  return Attachment{*index};
}

void Attachments::detach(Attachment a) {
  Registry& r = *seat_.registry;
  uint32_t index = static_cast<uint32_t>(a);
  if (index >= kMaxAttachments) return;
  Word_shm& entry = r.shm()->attachments[index];
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  auto word = AttachmentWord::unpack(entry.load(std::memory_order_acquire));
  if (!word || word->context != seat_.slot) return;
  fault_point("node.detach.before_store");
  // Without the lock too: nobody else writes this word while we live. What is then left over goes
  // with the next reaper.
  entry.store(0, std::memory_order_release);
  fault_point("node.detach.cleared");
  if (!lock) return;
  auto found = find_locked(r, lock, word->id);
  if (!found) return;
  Living living(r);
  if (!owner_alive(r, *found, living) && found->word.state == SegmentState::kLive) {
    reap_locked(r, lock);  // the owner died: its segments are removed, this one is deleted
    return;
  }
  if (found->word.state != SegmentState::kRemoved) return;
  if (count_attachments(r, word->id, living) != 0) return;
  delete_segment_locked(r, lock, found->word);
  settle_reservations_locked(r, lock);
}

std::vector<ContextSlot> Attachments::of(int32_t id) {
  std::vector<ContextSlot> out;
  Registry& r = *seat_.registry;
  // Without the lock too: each word is whole.
  Exclusive lock(r.lock(), Deadline::in(kLockWait));
  for (uint32_t i = 0; i < r.attachments_end(); ++i) {
    auto a = AttachmentWord::unpack(r.shm()->attachments[i].load(std::memory_order_acquire));
    if (!a || a->id != id) continue;
    const ContextSlot slot{a->context};
    if (std::find(out.begin(), out.end(), slot) == out.end()) out.push_back(slot);
  }
  return out;
}

}  // namespace cmi::node
