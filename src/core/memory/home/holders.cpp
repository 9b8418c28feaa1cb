#include "core/memory/home/holders.hpp"

#include <algorithm>
#include <optional>

#include "core/base/cause.hpp"
#include "core/base/holder.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/segment_lock.hpp"

namespace cmi::memory {

namespace {
bool lives_here(node::Node& node, uint64_t holder) {
  return node.members().any([&](const ContextId& id) { return holder_of(id, 0) == holder; });
}
}  // namespace

// An importer that was fenced and forgotten is not gone before the others have dropped what they
// had of before, and know what is in flux (rule 31): else the next owner of its lock could load
// what is old, and later what the dead one left, or a page that the dead one has half written.
bool holder_gone(HomeCore& home, const Segment& s, uint64_t holder) {
  const bool imports = std::any_of(s.sharers.begin(), s.sharers.end(), [&](const Sharer& h) {
    return holder_of(h.client, h.instance) == holder;
  });
  if (imports || lives_here(home.parts.node, holder)) return false;
  // Looked for after the sharers: what it left is to be dropped before it leaves them.
  Guard g(home.mu);
  return !home.rounds.keeps_from_gone(s.uid, holder) || mutated("mutate_gone_before_dropped");
}

Result<bool> holder_gone(HomeCore& home, int32_t segment, uint64_t holder, Deadline deadline) {
  if (lives_here(home.parts.node, holder)) return false;
  node::ContextSlot owner{};
  {
    const SegmentLock s(home, segment, SegmentLock::kMemory);
    if (!s) return because(Status::kInval, "there is no such segment");
    if (s->owned) return holder_gone(home, *s, holder);
    owner = s->owner;
  }
  BusHolder question;
  question.segment = segment;
  question.holder = holder;
  std::optional<uint64_t> status;
  if (!home.channel.ask(owner, question, -1, deadline, nullptr, &status)) {
    return because(Status::kReconfig, "the process that made the segment does not answer");
  }
  // With the owner, the segment's imports have ended.
  if (!status || *status == static_cast<uint64_t>(Status::kInval)) return true;
  if (*status == static_cast<uint64_t>(Status::kOk)) return false;
  return because(Status::kReconfig, "the process that made the segment has it no longer");
}

}  // namespace cmi::memory
