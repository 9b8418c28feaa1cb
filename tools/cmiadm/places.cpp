#include "places.hpp"

#include <utility>

#include "text.hpp"

namespace cmi::adm {

Places::Places(const Options& options, const Survey& survey, const node::MapQuestion* map)
    : survey_(survey) {
  for (const NodeRow& node : survey.nodes) {
    Reports reports = ask_contexts(options.runtime_dir, node, options.wait, map);
    for (const ContextRow& c : node.contexts) {
      const auto at = reports.by_slot.find(c.slot);
      if (at != reports.by_slot.end()) all_.push_back({&node, &c, std::move(at->second)});
    }
    for (pid_t pid : reports.silent) complain("process {} does not answer", pid);
  }
}

std::string Places::name(const ContextId& id) const {
  if (!id) return "home";
  for (const NodeRow& node : survey_.nodes) {
    for (const ContextRow& c : node.contexts) {
      if (c.id == id) return fmt::format("{} {}", printable(node.called()), c.pid);
    }
  }
  return hex16(id.hi);
}

bool Places::home_of(int32_t id, ContextId* home, int32_t* segment) const {
  for (const Place& p : all_) {
    for (const node::HomeLine& h : p.report.homes) {
      if (h.id != id) continue;
      *home = p.context->id;
      *segment = id;
      return true;
    }
    for (const node::ImportLine& i : p.report.imports) {
      if (i.id != id) continue;
      *home = i.home;
      *segment = i.home_segment;
      return true;
    }
  }
  return false;
}

}  // namespace cmi::adm
