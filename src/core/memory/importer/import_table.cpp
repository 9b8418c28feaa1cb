// Looking up imports.
#include "core/memory/importer/import_table.hpp"

namespace cmi::memory {

void ImportTable::add(const ImportPtr& imp) {
  Guard g(mu_);
  imp->instance = next_instance_++;
  imp->lease.set_expired(leases_expired_.count(imp->rseg.home) != 0);
  if (const auto end = lease_ends_.find(imp->rseg.home); end != lease_ends_.end())
    imp->lease.set_end(end->second);
  imports_.push_back(imp);
}

void ImportTable::remove(const ImportPtr& imp) {
  Guard g(mu_);
  std::erase(imports_, imp);
}

std::vector<ImportTable::ImportPtr> ImportTable::all() {
  Guard g(mu_);
  return imports_;
}

ImportTable::ImportPtr ImportTable::find(const ContextId& home, uint64_t uid, uint32_t instance) {
  Guard g(mu_);
  const auto it =
      std::lower_bound(imports_.begin(), imports_.end(), instance,
                       [](const auto& imp, uint32_t wanted) { return imp->instance < wanted; });
  if (it == imports_.end() || (*it)->instance != instance) return nullptr;
  return (*it)->rseg.uid == uid && (*it)->rseg.home == home ? *it : nullptr;
}

ImportTable::ImportPtr ImportTable::next_dirty(uint32_t after) {
  Guard g(mu_);
  const auto first =
      std::upper_bound(imports_.begin(), imports_.end(), after,
                       [](uint32_t instance, auto& imp) { return instance < imp->instance; });
  const auto found = std::find_if(first, imports_.end(), [](auto& imp) {
    return imp->views.local.any_stored() || !imp->dirty.none();
  });
  return found != imports_.end() ? *found : nullptr;
}

uint32_t ImportTable::pages_of_ours(int32_t id) {
  Guard g(mu_);
  for (auto& imp : imports_) {
    if (imp->id == id && imp->ours && !imp->events.marked.load()) return imp->pages;
  }
  return 0;
}

std::vector<ImportTable::ImportPtr> ImportTable::set_lease_expired(const ContextId& home,
                                                                   bool lease_expired) {
  std::vector<ImportPtr> imports;
  Guard g(mu_);
  if (lease_expired) {
    leases_expired_.insert(home);
  } else {
    leases_expired_.erase(home);
  }
  for (auto& imp : imports_) {
    if (imp->rseg.home != home) continue;
    imp->lease.set_expired(lease_expired);
    imports.push_back(imp);
  }
  return imports;
}

void ImportTable::set_lease_end(const ContextId& home, Nanos at) {
  Guard g(mu_);
  lease_ends_[home] = at;
  for (auto& imp : imports_) {
    if (imp->rseg.home == home) imp->lease.set_end(at);
  }
}

// One that has passed counts until it is noted: its alarm may be on its way to threads that have
// not run since, and a timer that is set anew takes that back. (Where nothing is imported it is
// never noted.) One that is noted, but was set anew, is about to be in force.
Nanos ImportTable::next_lease_end() {
  Guard g(mu_);
  const Nanos t = now();
  Nanos next = 0;
  for (const auto& [id, end] : lease_ends_) {
    const auto from_home = [&home = id](const auto& imp) { return imp->rseg.home == home; };
    if (end <= t && (leases_expired_.count(id) != 0 ||
                     std::none_of(imports_.begin(), imports_.end(), from_home))) {
      continue;
    }
    if (next == 0 || end < next) next = end;
  }
  return next;
}

void ImportTable::forget_lease(const ContextId& home) {
  Guard g(mu_);
  lease_ends_.erase(home);
  leases_expired_.erase(home);
}

}  // namespace cmi::memory
