// Stores in order: pages behind one that is stored to are made writable with it, by one fault, one
// request for their dirty intents and one system call. Those that are not stored to after all are
// found equal to their twins when they are written back. Runs in the SIGBUS handler, all signals
// blocked.
#include "core/memory/importer/write_stream.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/usdt.hpp"
#include "core/memory/importer/dirty_intents.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/page_moves.hpp"

namespace cmi::memory {

// All of the pages under their locks, as one page in Fault.
uint32_t dirty_ahead(ImporterCore& core, const View& view, PageRange pages, const PageSeen* seen,
                     bool* readahead) {
  Import& imp = *view.import;
  const uint32_t first = pages.first, last = pages.first + pages.count;
  std::byte* const at = view.addr + size_t{first} * kPageSize;
  for (uint32_t i = first; i < last; ++i) imp.page(i).lock();
  const auto ready = [&](uint32_t i) {
    const Page& p = imp.page(i);
    const bool clean = p.state == PageState::kClean && (i == first || !p.marker);
    return (clean || (i == first && p.state == PageState::kWriting)) && !p.pinned &&
           (!imp.intents || p.intent.held()) && usable(imp, true, i) == Exception::kNone &&
           i < imp.brk.load(std::memory_order_seq_cst) && !imp.lease.is_over() &&
           !imp.flux.contains(i);
  };
  uint32_t n = 0;
  if (seen != nullptr && imp.page(first).may_have_been_dirty_since(*seen)) pages.count = 0;
  while (n < pages.count && ready(first + n) && make_dirty(core, view, first + n)) {
    ++imp.page(first + n).generation;
    ++n;
  }
  // Before the store goes on, and the stream with it.
  imp.in_order.stores.taken(first, first + std::max(n, 1u));
  if (n > 0) {
    count(core.parts.stats.store_faults);
    imp.stats.pages.count(first, PageCosts::Kind::kFirstStore);
    CMI_PROBE3(store, imp.id, first, n);
    *readahead = std::exchange(imp.page(first).marker, false);
    // Those that were fetched for stores are in no view yet, and need no second fault, by which the
    // kernel makes a page writable that was mapped protected. Where some are and others not, the
    // latter fault once more.
    const size_t mapped = core.userfault.map_absent(at, size_t{n} * kPageSize);
    const size_t left = size_t{n} * kPageSize - mapped;
    if (left > 0) core.userfault.unprotect(at + mapped, left);
    zap_if_over(imp, view, {first, n});
  }
  std::vector<DirtyIntent> unused;
  for (uint32_t i = first + std::max(n, 1u); i < last && imp.intents; ++i) {
    Page& p = imp.page(i);
    // Another thread may have stored to it by now. One that fetches it for a store looks again.
    const bool in_use = p.state != PageState::kClean && p.state != PageState::kAbsent &&
                        p.state != PageState::kFetching && p.state != PageState::kStale;
    const uint8_t epoch = in_use ? 0 : p.intent.take();
    if (epoch != 0) unused.push_back({i, epoch});
  }
  for (uint32_t i = first; i < last; ++i) imp.page(i).unlock();
  if (!unused.empty()) give_back_intents(*view.import, unused);
  return n;
}

}  // namespace cmi::memory
