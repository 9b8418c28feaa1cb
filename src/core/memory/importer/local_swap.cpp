// See local_swap.hpp.
#include "core/memory/importer/local_swap.hpp"

#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/await_home.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/local_import.hpp"

namespace cmi::memory {

namespace {
using Swapped = LocalViews::Opened::Swapped;

// Under the lock of the local views: what ends the use of a page is noted first, and takes the page
// out of the views under that lock after.
bool may_swap_here(Import& imp, uint32_t page) {
  return usable(imp, false, page) == Exception::kNone &&
         imp.grant.has(fabric::kAtomic | fabric::kWrite) && imp.allows(page) &&
         page < imp.brk.load(std::memory_order_seq_cst) && !imp.lease.is_over() &&
         !imp.flux.contains(page);
}

// The page is marked until all who cache it have dropped it. Where none does, nobody is told.
void publish_swap(ImporterCore& core, const std::shared_ptr<Import>& owner, Deadline deadline) {
  if (mutated("mutate_mapped_swap_unannounced")) return;
  announce_stores(core, owner, LocalViews::Taker::kBarrier);
  if (core.write_backs.count() == 0) return;
  if (!await(core, core.write_backs.open(), {deadline})) {
    trace(kFacMem, kWarn, "atm_cas: the home did not confirm the publication in time");
  }
}
}  // namespace

std::optional<Exception> swap_in_place(ImporterCore& core, const std::shared_ptr<Import>& owner,
                                       uint64_t offset, uint64_t expected, uint64_t desired,
                                       uint64_t* found, Deadline deadline) {
  Import& imp = *owner;
  const auto page = static_cast<uint32_t>(offset / kPageSize);
  bool granted = false;
  const auto try_once = [&] {
    return imp.views.local.look(page, [&](LocalViews::Opened& at) {
      granted = at.page() != LocalViews::Page::kNoGrant;
      if (!granted || !may_swap_here(imp, page)) return Swapped::kNot;
      return at.swap(offset % kPageSize, expected, desired, found);
    });
  };
  Swapped made = try_once();
  if (!granted) {
    if (const auto e = join_local(core, owner, deadline)) return e;
    if (imp.views.local.local()) made = try_once();
  }
  if (made == Swapped::kNot) return std::nullopt;
  if (made == Swapped::kMade) publish_swap(core, owner, deadline);
  if (made == Swapped::kLost) count(core.parts.stats.cas_lost);
  return Exception::kNone;
}

}  // namespace cmi::memory
