#include "core/node/seat.hpp"

namespace cmi::node {

std::optional<FoundSegment> find_locked(Registry& r, const Exclusive&, int32_t id) {
  if (id <= 0) return std::nullopt;
  Segment_shm& s = r.shm()->segments[index_of(id)];
  auto word = SegmentWord::unpack(s.state.load(std::memory_order_acquire), index_of(id));
  if (!word || word->id != id || word->state == SegmentState::kMaking) return std::nullopt;
  return FoundSegment{&s, *word};
}

bool owner_alive(const Registry& r, const FoundSegment& f, Living& living) {
  return r.member(f.word.owner, ContextId{f.shm->owner_hi, f.shm->owner_lo}) &&
         living(f.word.owner);
}

uint32_t count_attachments(Registry& r, int32_t id, Living& living) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < r.attachments_end(); ++i) {
    auto a = AttachmentWord::unpack(r.shm()->attachments[i].load(std::memory_order_acquire));
    if (a && a->id == id && living(a->context)) ++n;
  }
  return n;
}

}  // namespace cmi::node
