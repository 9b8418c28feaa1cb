// The question whether the homes that segments are imported from can be reached
// (engine/probe_all.hpp).
#include <algorithm>

#include "core/memory/importer/importer.hpp"

namespace cmi::memory {

std::vector<Importer::Asked> Importer::ask_homes() {
  std::vector<Asked> asked;
  for (auto& imp : all_imports()) {
    if (!imp->ours || !imp->events.made.load() || imp->events.marked.load())
      continue;  // not to be told of
    if (std::any_of(asked.begin(), asked.end(),
                    [&](const Asked& a) { return a.link == imp->link; })) {
      continue;
    }
    Asked a{{imp->rseg.home_node, imp->rseg.home}, imp->link->home_listener(), imp->link, nullptr};
    if (!a.link->condemned()) {
      a.request = a.link->start(static_cast<uint16_t>(RequestType::kAlive), {});
    }
    asked.push_back(std::move(a));
  }
  return asked;
}

}  // namespace cmi::memory
