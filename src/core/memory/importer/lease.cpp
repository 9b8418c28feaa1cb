// Homes that are out of sight for a while, and homes that are lost. On the service thread, but for
// home_has_ended().
#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/importer.hpp"

namespace cmi::memory {

namespace {
constexpr uint32_t kLeaseRun = 512;        // pages locked at once
constexpr Nanos kLeaseLook = 50 * kMilli;  // for the watch to find proof of a home's end
constexpr Nanos kLeaseNap = kMilli;
}  // namespace

bool Importer::imports_from(const ContextId& home) {
  Guard g(imports_mu_);
  return std::any_of(imports_.begin(), imports_.end(),
                     [&](auto& imp) { return imp->rseg.home == home; });
}

bool Importer::concerned_with(const ContextId& home) {
  Guard g(imports_mu_);
  return std::any_of(imports_.begin(), imports_.end(), [&](auto& imp) {
    return imp->rseg.home == home && imp->ours && imp->events.made.load() &&
           !imp->events.marked.load();
  });
}

std::shared_ptr<fabric::Link> Importer::link_with(const ContextId& home) {
  return links_.find(home);
}

void Importer::try_link(const ContextId& home) {
  const auto link = link_with(home);
  if (link != nullptr && link->routes() > 1 && link->heard() != 0 && !link->condemned()) {
    link->start(static_cast<uint16_t>(RequestType::kAlive), {});
  }
}

// Only the mappings go: pages keep their states, their bytes and their twins, and come back without
// asking the home, which holds up all invalidation rounds until we are heard of or declared dead.
void Importer::set_lease_expired(const ContextId& home, bool lease_expired) {
  SignalsBlocked quiet;
  std::vector<std::shared_ptr<Import>> imports;
  {
    Guard g(imports_mu_);
    if (lease_expired) {
      leases_expired_.insert(home);
    } else {
      leases_expired_.erase(home);
    }
    for (auto& imp : imports_) {
      if (imp->rseg.home != home) continue;
      imp->lease_expired.store(lease_expired, std::memory_order_seq_cst);
      imports.push_back(imp);
    }
  }
  for (auto& imp : imports) {
    if (lease_expired && imp->cache.ready()) {
      Guard views(imp->views.mu);
      for (uint32_t first = 0; first < imp->pages; first += kLeaseRun) {
        const uint32_t n = std::min(kLeaseRun, imp->pages - first);
        bool any = false;
        for (uint32_t k = 0; k < n; ++k) {
          imp->page(first + k).lock();
          any = any || may_be_mapped(imp->page(first + k).state);
        }
        // Under the locks: who served an access before has mapped it, who comes now sees `lapsed`.
        if (any && !mutated("mutate_lapse_kept")) zap_everywhere(*imp, first, n);
        for (uint32_t k = 0; k < n; ++k) imp->page(first + k).unlock();
      }
    }
    imp->changes.notify();
  }
  if (lease_expired) {
    fault_point("lapsed");
  } else {
    fault_point("lapse_over");
  }
}

void Importer::lose_home(const ContextId& home) {
  SignalsBlocked quiet;
  if (auto link = link_with(home); link != nullptr) lose_home(link);
  Guard g(imports_mu_);
  leases_expired_.erase(home);
}

// Something that was asked of the home was not answered. Has it ended? Silence alone does not say.
bool Importer::home_has_ended(Import& imp) {
  if (imp.link->condemned()) return true;
  parts_.watch.suspect(imp.rseg.home);
  for (const Deadline soon = Deadline::in(kLeaseLook); !soon.passed() && !imp.link->condemned();) {
    imp.changes.wait(imp.changes.seen(), kLeaseNap);
  }
  return imp.link->condemned();
}

}  // namespace cmi::memory
