// The end of a token, of a segment, of a home.
#include "core/memory/importer/import_end.hpp"

#include <optional>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/importer/local_import.hpp"
#include "core/memory/importer/page_drops.hpp"
#include "core/memory/importer/write_back.hpp"

namespace cmi::memory {

bool end_import(ImporterCore& core, const std::shared_ptr<Import>& imp, ImportState state,
                uint64_t token) {
  // Begun before anybody can see the new state, so that a report of what is lost waits for us.
  auto write_back = core.write_backs.begin(imp);
  std::optional<Grant::Sweep> sweep = imp->grant.end(state, token);
  const bool ends = sweep.has_value();
  if (ends) {
    fault_point("end_before_drop");
    if (imp->views.local.local()) end_local(core, imp, state == ImportState::kGone);
    if (imp->cache.ready()) drop_all(core, imp);
    sweep.reset();
  }
  end_part(core, write_back);
  return ends;
}

void lose_home(ImporterCore& core, const std::shared_ptr<fabric::Link>& link) {
  if (!link->condemn()) return;
  fault_point("mutation_lost_home_window");
  for (auto& imp : core.imports.all()) {
    if (imp->link != link) continue;
    end_import(core, imp, ImportState::kGone);
    end_quiesce(core, *imp);
  }
  (void)core.parts.node.marks().settle(2 * kMilli);
  link->advance();  // ends what was under way as lost
  core.losses.lose(link);
  core.losses.report();
}

void forget(ImporterCore& core, const std::shared_ptr<Import>& imp) {
  // What was stored there is home. Pages of which nobody has heard stay marked: a home that has not
  // heard of this end takes them for in flux.
  if (imp->views.local.local()) {
    imp->views.local.close();
    (void)imp->views.local.take(LocalViews::Taker::kOther);
  }
  if (imp->cache.ready()) drop_all(core, imp);
  core.imports.remove(imp);
}

}  // namespace cmi::memory
