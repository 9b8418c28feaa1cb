// See ask.hpp.
#include "ask.hpp"

#include <time.h>

#include <optional>

#include "core/base/clock.hpp"
#include "core/node/inquiry.hpp"

namespace cmi::adm {

namespace {

struct Asked {
  const ContextRow* context;
  std::optional<node::Inquiry> inquiry;  // none: its queue was full, or it has an answer
  bool over = false;
};

// One step for one context; true when something came of it.
bool advance(const node::Folder& folder, Asked& a, const node::MapQuestion* map, Reports* out) {
  if (!a.inquiry) {
    node::MapQuestion question;
    if (map != nullptr) question = *map;
    question.at_home = a.context->id == question.home;
    auto sent = node::Inquiry::send(folder, a.context->slot, map != nullptr ? &question : nullptr);
    if (sent) {
      a.inquiry.emplace(sent.take());
      return true;
    }
    a.over = sent.status() != Status::kReconfig;
    return a.over;
  }
  auto report = a.inquiry->look();
  if (!report && report.status() == Status::kReconfig) return false;
  a.over = true;
  if (report) out->by_slot.emplace(a.context->slot, report.take());
  return true;
}

}  // namespace

Reports ask_contexts(const std::string& runtime_dir, const NodeRow& node, Nanos wait,
                     const node::MapQuestion* map) {
  Reports out;
  if (wait == 0) return out;
  const Result<node::Folder> folder = open_node(runtime_dir, node);
  if (!folder) return out;
  std::vector<Asked> asked;
  for (const ContextRow& c : node.contexts) {
    if (c.alive) asked.push_back({&c, std::nullopt, c.stopped()});
  }
  const Deadline deadline = Deadline::in(wait);
  for (;;) {
    bool moved = false, waiting = false;
    for (Asked& a : asked) {
      if (a.over) continue;
      moved = advance(*folder, a, map, &out) || moved;
      waiting = waiting || !a.over;
    }
    if (!waiting || deadline.passed()) break;
    if (!moved) {
      timespec t{0, kMilli};
      nanosleep(&t, nullptr);
    }
  }
  for (const Asked& a : asked) {
    if (!out.by_slot.contains(a.context->slot)) out.silent.push_back(a.context->pid);
  }
  return out;
}

const node::HomeLine* report_of(const Reports& reports, const SegmentRow& s) {
  const auto owner = reports.by_slot.find(s.owner);
  if (owner == reports.by_slot.end() || s.kind != node::SegmentKind::kHome || !s.owner_alive) {
    return nullptr;
  }
  for (const node::HomeLine& line : owner->second.homes) {
    if (line.id == s.id) return &line;
  }
  return nullptr;
}

const char* import_state_name(uint8_t state) {
  constexpr const char* kNames[] = {"no token", "usable", "revoked", "removed", "gone"};
  return state < std::size(kNames) ? kNames[state] : "unknown";
}

}  // namespace cmi::adm
