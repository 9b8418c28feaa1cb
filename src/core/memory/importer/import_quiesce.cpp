// A home quiesces a segment that is imported here: seg_at refuses it on this node, and the client
// gets an event. Service thread, or the thread that imports.
#include "core/base/log.hpp"
#include "core/memory/importer/import_end.hpp"

namespace cmi::memory {

void on_quiesce(ImporterCore& core, const std::shared_ptr<Import>& imp, bool on, uint32_t round) {
  if (!imp->events.quiesce.take(round, on)) return;
  // Other processes of the node that have the segment attached hear of it by their own imports.
  // Only the importing process sets the mark in the registry and notifies its client.
  const auto returned = [to = std::weak_ptr(imp->link), uid = imp->rseg.uid,
                         instance = imp->instance, round] {
    const auto link = to.lock();  // the client may keep the event longer than we keep links
    if (link == nullptr) return;
    link->start(static_cast<uint16_t>(RequestType::kReturned),
                Encoded(ReturnedRequest{uid, instance, round}));
  };
  if (!imp->ours || imp->events.marked.load()) return on ? returned() : void();
  constexpr uint32_t kQuiesced = node::kMarkQuiesced;
  core.parts.node.marks().note(imp->id, on ? kQuiesced : 0, on ? 0 : kQuiesced);
  (void)core.parts.node.marks().settle(2 * kMilli);
  trace(kFacEvt, kInfo, "segment {}: {}", imp->id, on ? "quiesced" : "resumed");
  if (on) {
    core.parts.observer.quiesced(imp->id, returned);
  } else {
    core.parts.observer.resumed(imp->id);
  }
}

void end_quiesce(ImporterCore& core, Import& imp) {
  if (!imp.events.quiesce.end() || !imp.ours) return;
  core.parts.node.marks().note(imp.id, 0, node::kMarkQuiesced);
}

}  // namespace cmi::memory
