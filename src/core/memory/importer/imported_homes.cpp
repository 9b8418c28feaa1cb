// Homes that are out of sight for a while, and homes that are lost.
#include "core/memory/importer/imported_homes.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/import_end.hpp"
#include "core/memory/importer/page_moves.hpp"

namespace cmi::memory {

namespace {
constexpr uint32_t kLeaseRun = 512;        // pages locked at once
constexpr Nanos kLeaseLook = 50 * kMilli;  // for the watch to find proof of a home's end
constexpr Nanos kLeaseNap = kMilli;
// The clock that a lease is looked at by (now_or_a_tick_ago) has come to its end when the alarm
// does: what the alarm has taken is not mapped again. A tenth of CMI_DEAD_AFTER, 100 ms at least,
// is left for it.
constexpr Nanos kTick = 10 * kMilli;

void zap_all(Import& imp) {
  Guard views(imp.views.mu);
  for (uint32_t first = 0, n = 0; (first = next_touched(imp, first + n, imp.pages)) < imp.pages;) {
    n = std::min(kLeaseRun, imp.pages - first);
    bool any = false;
    for (uint32_t k = 0; k < n; ++k) {
      Page& page = imp.page(first + k);
      page.lock();
      any = any || may_be_mapped(page.state);
    }
    // Under the locks: an access that was served before has been mapped, one that comes now sees
    // that the lease is over.
    if (any && !mutated("mutate_kept_without_lease")) zap_everywhere(imp, first, n);
    for (uint32_t k = 0; k < n; ++k) imp.page(first + k).unlock();
  }
}
}  // namespace

bool ImportedHomes::imports_from(const ContextId& home) {
  return core_.imports.any([&](const auto& imp) { return imp->rseg.home == home; });
}

bool ImportedHomes::concerned_with(const ContextId& home) {
  return core_.imports.any(
      [&](const auto& imp) { return imp->rseg.home == home && imp->ours && imp->events.named(); });
}

std::shared_ptr<fabric::Link> ImportedHomes::link_with(const ContextId& home) {
  return core_.links.find(home);
}

void ImportedHomes::try_link(const ContextId& home) {
  const auto link = link_with(home);
  if (link != nullptr && link->routes().count() > 1 && link->health().heard() != 0 &&
      !link->condemned()) {
    link->start(static_cast<uint16_t>(RequestType::kAlive), {});
  }
}

void ImportedHomes::lose(const ContextId& home) {
  SignalsBlocked quiet;
  if (auto link = link_with(home); link != nullptr) lose_home(core_, link);
  core_.imports.forget_lease(home);
  set_alarm();
}

// Only the mappings go: pages keep their states, their bytes and their twins, and come back without
// asking the home, which holds up all invalidation rounds until we are heard of or declared dead.
void ImportedHomes::set_lease_expired(const ContextId& home, bool lease_expired) {
  SignalsBlocked quiet;
  for (auto& imp : core_.imports.set_lease_expired(home, lease_expired)) {
    if (lease_expired && imp->views.local.local()) imp->views.local.zap_all();
    if (lease_expired && imp->cache.ready()) zap_all(*imp);
    imp->changes.notify();
  }
  set_alarm();  // for the next one: nothing of this one is mapped any more
  if (lease_expired) {
    fault_point("lease_expired");
  } else {
    fault_point("lease_renewed");
  }
}

void ImportedHomes::set_lease_end(const ContextId& home, Nanos at) {
  SignalsBlocked quiet;
  core_.imports.set_lease_end(home, at);
  set_alarm();
}

void ImportedHomes::set_alarm() {
  const Nanos next = core_.imports.next_lease_end();
  core_.lease_alarm.set(next == 0 ? 0 : next + kTick);
}

std::vector<ImportedHomes::Asked> ImportedHomes::ask() {
  std::vector<Asked> asked;
  for (auto& imp : core_.imports.all()) {
    if (!imp->ours || !imp->events.named()) continue;
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

bool home_has_ended(ImporterCore& core, Import& imp) {
  if (imp.link->condemned()) return true;
  core.parts.watch.suspect(imp.rseg.home);
  for (const Deadline soon = Deadline::in(kLeaseLook); !soon.passed() && !imp.link->condemned();) {
    imp.changes.wait(imp.changes.seen(), kLeaseNap);
  }
  return imp.link->condemned();
}

}  // namespace cmi::memory
