// The imports of this context, in the order in which they were made, and the homes whose lease has
// expired. Any thread; the lock is held over look-ups in the list, with DirtyList::mu_ inside.
//
// Invariant: an import of a home whose lease has expired says so from before anybody finds it here.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "core/memory/importer/import.hpp"
#include "core/memory/importer/lock_order.hpp"

namespace cmi::memory {

class ImportTable {
 public:
  using ImportPtr = std::shared_ptr<Import>;

  // Gives it its instance, which no other import of this process ever has.
  void add(const ImportPtr& imp);
  void remove(const ImportPtr& imp);
  std::vector<ImportPtr> all();
  // Null: there is none; one that was left holds nothing.
  ImportPtr find(const ContextId& home, uint64_t uid, uint32_t instance);
  // The first after the one of this instance with dirty pages in its lists; null: none. What
  // another thread has taken from such a list is in a write-back of its own, which is begun before.
  ImportPtr next_dirty(uint32_t after);
  template <class Predicate>
  bool any(Predicate wanted) {
    Guard g(mu_);
    return std::any_of(imports_.begin(), imports_.end(), wanted);
  }
  // Pages of the import that this process made under this id; 0: of none, or of one that is marked
  // for deletion.
  uint32_t pages_of_ours(int32_t id);

  // Notes it of the home and of all imports from it, which are returned.
  std::vector<ImportPtr> set_lease_expired(const ContextId& home, bool lease_expired);
  // The lease of the home is over then. Throws bad_alloc.
  void set_lease_end(const ContextId& home, Nanos at);
  // When the next one of all leases is over; in the past where one is that has not been noted. 0:
  // none.
  Nanos next_lease_end();
  // The home is lost: its lease is no matter any more.
  void forget_lease(const ContextId& home);

 private:
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_reports)
      CMI_ACQUIRED_BEFORE(lock_order::after_tables);
  std::vector<ImportPtr> imports_ CMI_GUARDED_BY(mu_);  // ascending by instance
  uint32_t next_instance_ CMI_GUARDED_BY(mu_) = 1;
  std::set<ContextId> leases_expired_ CMI_GUARDED_BY(mu_);
  std::map<ContextId, Nanos> lease_ends_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::memory
