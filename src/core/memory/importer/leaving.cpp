// The end of imports in good order.
#include "core/memory/importer/leaving.hpp"

#include <algorithm>
#include <map>

#include "core/base/log.hpp"
#include "core/memory/importer/await_home.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/import_end.hpp"
#include "core/memory/importer/local_import.hpp"
#include "core/memory/importer/publishing.hpp"

namespace cmi::memory {

namespace {
// What is said when all is written back, however long that took.
Deadline last_words(const Patience& patience) {
  return {std::max(patience.deadline.at, now() + kSecond)};
}
}  // namespace

// Writes back.
Leaving::Use Leaving::end_use(const std::shared_ptr<Import>& imp, const Patience& patience) {
  LossMark lost = core_.losses.mark();
  const bool home = ok(Publishing(core_).barrier(lost, patience));
  const ImportState state = imp->grant.state();
  if (state == ImportState::kGone ||
      (state == ImportState::kRemoved && home_has_ended(core_, *imp))) {
    return Use::kHomeEnded;
  }
  // Mapped pages that are stored to again and again are announced as well.
  announce_stores(core_, imp);
  // Stores that were given up just now are the home's business like those of the dead.
  bool over = (home || state == ImportState::kUsable) && await_idle_key(*imp, last_words(patience));
  // The timer, or another thread's barrier, may have begun a write-back since: in a process that
  // ends beside threads at work they do so to the last moment.
  bool under_way = being_written_back(*imp);
  while (over && under_way && !patience.deadline.passed()) {
    if (!await(core_, core_.write_backs.open(), patience)) break;
    under_way = being_written_back(*imp);
  }
  return over && !under_way ? Use::kOver : Use::kUnderWay;
}

bool Leaving::being_written_back(const Import& imp) const {
  const auto open = core_.write_backs.open();
  return std::any_of(open.begin(), open.end(),
                     [&](const auto& write_back) { return write_back->import.get() == &imp; });
}

void Leaving::leave(const std::shared_ptr<Import>& imp, const Patience& patience) {
  if (end_use(imp, patience) == Use::kOver) {
    const LeaveRequest m{imp->rseg.uid, imp->instance};
    (void)imp->link->call(static_cast<uint16_t>(RequestType::kLeave), Encoded(m),
                          last_words(patience));
  }
  forget(core_, imp);
}

void Leaving::say_goodbye(const std::vector<std::shared_ptr<Import>>& imports,
                          const Patience& patience) {
  // One goodbye for each home, if all imports from it are over: so the home reports the end of a
  // context. Single leave messages would look like segments that are no longer wanted.
  std::map<std::shared_ptr<fabric::Link>, bool> under_way;
  for (auto& imp : imports) {
    const bool this_one = end_use(imp, patience) == Use::kUnderWay;
    under_way[imp->link] = under_way[imp->link] || this_one;
  }
  for (auto& [link, something] : under_way) {
    if (something || link->condemned()) continue;
    (void)link->call(static_cast<uint16_t>(RequestType::kGoodbye), {}, last_words(patience));
  }
}

void Leaving::leave_all(const std::vector<std::shared_ptr<Import>>& imports,
                        const Patience& patience) {
  say_goodbye(imports, patience);
  for (auto& imp : imports) forget(core_, imp);
}

}  // namespace cmi::memory
