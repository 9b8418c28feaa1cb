// See local_swap.hpp.
#include "core/memory/importer/local_swap.hpp"

#include <algorithm>

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

// Another thread may have announced the page. False: not in time. What its home lost with it, or
// refused, is told as any lost store.
bool all_have_heard(ImporterCore& core, const std::shared_ptr<Import>& owner, Deadline deadline) {
  if (core.write_backs.count() == 0) return true;
  std::vector<WriteBackPtr> open = core.write_backs.open();
  std::erase_if(open, [&owner](const WriteBackPtr& b) { return b->import != owner; });
  (void)await(core, open, {deadline});
  return std::all_of(open.begin(), open.end(), [](const auto& b) { return b->done.done(); });
}
}  // namespace

Exception await_heard(ImporterCore& core, const std::shared_ptr<Import>& owner, uint64_t* found,
                      PendingSwap* pending, Deadline deadline) {
  if (!all_have_heard(core, owner, deadline)) return Exception::kTransient;
  *found = *pending->made;
  pending->made.reset();
  return Exception::kNone;
}

std::optional<Exception> swap_in_place(ImporterCore& core, const std::shared_ptr<Import>& owner,
                                       uint64_t offset, uint64_t expected, uint64_t desired,
                                       uint64_t* found, PendingSwap* pending, Deadline deadline) {
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
  if (made == Swapped::kLost) count(core.parts.stats.cas_lost);
  if (made != Swapped::kMade || mutated("mutate_mapped_swap_unannounced")) return Exception::kNone;
  // The page is marked until all who cache it have dropped it. Where none does, nobody is told.
  announce_stores(core, owner, LocalViews::Taker::kBarrier);
  *pending = {pending->call, owner, nullptr, offset, nullptr, *found};
  return await_heard(core, owner, found, pending, deadline);
}

}  // namespace cmi::memory
