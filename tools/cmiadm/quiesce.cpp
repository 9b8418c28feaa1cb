// cmiadm quiesce, cmiadm resume: has the clients of a segment stop using it, and go on.
#include "core/node/quiesce.hpp"

#include "command.hpp"
#include "text.hpp"

namespace cmi::adm {

namespace {

int ask(const Options& options, bool on) {
  const Survey all = options.look();
  complain_about(all);
  const NodeRow* at = nullptr;
  for (const NodeRow& node : all.nodes) {
    for (const SegmentRow& s : node.segments) {
      if (s.id != options.id || s.kind != node::SegmentKind::kHome) continue;
      if (at != nullptr) {
        complain("several nodes have a segment {}; say which with --node", options.id);
        return kUsage;
      }
      at = &node;
    }
  }
  if (at == nullptr) {
    complain("no node here is home to a segment {}; imports are quiesced at their home",
             options.id);
    return kTrouble;
  }
  auto node = node::Node::join(at->config(options.runtime_dir), random_context_id());
  if (!node) {
    complain("node {}: it cannot be joined to ask: {}", at->name, status_name(node.status()));
    return kTrouble;
  }
  const Status status = node::ask_quiesce(**node, options.id, on, Deadline::in(options.wait));
  switch (status) {
    case Status::kOk:
      fmt::print("segment {} is {}\n", options.id,
                 on ? "quiesced: its clients have stopped" : "resumed");
      return kFine;
    case Status::kReconfig:
      complain(
          "segment {}: not all have answered within {}; ask again, with a longer --wait: a client "
          "may be slow to return its event (evt_ret), or its maker may be stopped",
          options.id, human_time(static_cast<uint64_t>(options.wait)));
      return kTrouble;
    case Status::kInval:
      complain("segment {}: it is gone, marked for deletion, or its maker has ended", options.id);
      return kTrouble;
    default:
      complain("segment {}: refused: {}", options.id, status_name(status));
      return kTrouble;
  }
}

}  // namespace

int quiesce(const Options& options) { return ask(options, true); }
int resume(const Options& options) { return ask(options, false); }

}  // namespace cmi::adm
