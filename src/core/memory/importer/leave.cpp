// The end of imports in good order: of one of them, of all with their context, and what the end of
// a home in good order makes of those that came from it. Application threads, but for on_goodbye,
// which the service thread runs.
#include <algorithm>

#include "core/base/log.hpp"
#include "core/memory/importer/importer.hpp"

namespace cmi::memory {

namespace {
// What is said when all is written back, however long that took.
Deadline last_words(const Patience& patience) {
  return {std::max(patience.deadline.at, now() + kSecond)};
}
}  // namespace

// Writes back. kOver: the home lives, as far as we know, and may forget this import. With stores or
// reads still under way it must not: should the stores arrive and never be announced, it tells the
// others when it finds us dead.
Importer::Use Importer::end_use(const std::shared_ptr<Import>& imp, const Patience& patience) {
  LossMark lost = losses();
  const bool home = ok(barrier(lost, patience));
  const ImportState state = imp->grant.state();
  if (state == ImportState::kGone || (state == ImportState::kRemoved && home_has_ended(*imp))) {
    return Use::kHomeEnded;
  }
  // Stores that were given up just now are the home's business like those of the dead.
  bool over = (home || state == ImportState::kUsable) && await_idle_key(*imp, last_words(patience));
  for (auto& b : open_batches()) over = over && b->import != imp;
  return over ? Use::kOver : Use::kUnderWay;
}

void Importer::forget(const std::shared_ptr<Import>& imp) {
  if (imp->cache.ready()) drop_all(imp);
  Guard g(imports_mu_);
  std::erase(imports_, imp);
}

void Importer::leave(const std::shared_ptr<Import>& imp, const Patience& patience) {
  if (end_use(imp, patience) == Use::kOver) {
    const LeaveRequest m{imp->rseg.uid, imp->instance};
    (void)imp->link->call(static_cast<uint16_t>(RequestType::kLeave), Encoded(m),
                          last_words(patience));
  }
  forget(imp);
}

void Importer::leave_all(const std::vector<std::shared_ptr<Import>>& imports,
                         const Patience& patience) {
  // One goodbye for each home, if all that was imported from it is over: it is then told that a
  // context has ended, where single leaves would look like segments that are no longer wanted.
  std::map<std::shared_ptr<fabric::Link>, bool> under_way;
  for (auto& imp : imports) {
    const bool this_one = end_use(imp, patience) == Use::kUnderWay;
    under_way[imp->link] = under_way[imp->link] || this_one;
  }
  for (auto& [link, something] : under_way) {
    if (something || link->condemned()) continue;
    (void)link->call(static_cast<uint16_t>(RequestType::kGoodbye), {}, last_words(patience));
  }
  for (auto& imp : imports) forget(imp);
}

void Importer::on_goodbye(const ContextId& home) {
  auto links = links_that([&](const fabric::Link& l) { return l.home() == home; });
  for (auto& link : links) lose_home(link);
}

}  // namespace cmi::memory
