// Stores in order: pages behind one that is stored to are made writable with it, by one fault, one
// request for their marks and one system call. Those that are not stored to after all are found
// equal to their twins when they are written back. Runs in the SIGBUS handler, all signals blocked.
#include <algorithm>
#include <atomic>
#include <span>
#include <utility>
#include <vector>

#include "core/base/fault_point.hpp"
#include "core/memory/collector.hpp"
#include "core/memory/importer.hpp"

namespace cmi::memory {

namespace {
// Of dirty pages, in the list of one import: from so many on the oldest go home, some at a time.
constexpr size_t kMostDirty = 2048, kBehind = 512;
constexpr size_t kMostBatches = 8;  // that are not over: those of runs have a message each
constexpr Nanos kWaitForRoom = 100 * kMilli;

struct Turn {
  explicit Turn(std::atomic<bool>& taken_by_one)
      : taken(taken_by_one), mine(!taken.exchange(true, std::memory_order_acquire)) {}
  ~Turn() {
    if (mine) taken.store(false, std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  std::atomic<bool>& taken;
  const bool mine;
};
}  // namespace

// The pages at the front of a range whose turn it is, all of them under their locks: their marks
// are held (rule 21), and nothing is in the way of a store to them (as in serve()). Returns how
// many, 0 where the first is another one by now. The marks of the others are given back, but for
// the first page's, whose store is tried again. `seen`: see serve(). *come_by: see Page::marker.
uint32_t Importer::dirty_ahead(const View& view, PageRange pages, const PageSeen* seen,
                               bool* come_by) {
  Import& imp = *view.import;
  const uint32_t first = pages.first, last = pages.first + pages.count;
  std::byte* const at = view.addr + size_t{first} * kPageSize;
  for (uint32_t i = first; i < last; ++i) imp.table[i].lock();
  const auto ready = [&](uint32_t i) {
    const Page& p = imp.table[i];
    const bool clean = p.state == PageState::kClean && (i == first || !p.marker);
    return (clean || (i == first && p.state == PageState::kWriting)) && !p.pinned &&
           (!imp.marks || p.mark.held()) && usable(imp, true, i) == Exception::kNone &&
           i < imp.brk.load(std::memory_order_seq_cst) &&
           !imp.lapsed.load(std::memory_order_seq_cst) && !imp.is_in_flux(i);
  };
  uint32_t n = 0;
  if (seen != nullptr && imp.table[first].may_have_been_dirty_since(*seen)) pages.count = 0;
  while (n < pages.count && ready(first + n) && make_dirty(view, first + n)) {
    ++imp.table[first + n].generation;
    ++n;
  }
  // Before the store goes on, and the stream with it.
  imp.stores.taken(first, first + std::max(n, 1u));
  if (n > 0) {
    count(parts_.stats.store_faults);
    *come_by = std::exchange(imp.table[first].marker, false);
    // Those that were fetched for stores are in no view yet, and need no second fault, by which the
    // kernel makes a page writable that was mapped protected. Where some are and others not, the
    // latter fault once more.
    const size_t mapped = userfault_.map_absent(at, size_t{n} * kPageSize);
    const size_t left = size_t{n} * kPageSize - mapped;
    if (left > 0) userfault_.unprotect(at + mapped, left);
  }
  std::vector<PageMark> unused;
  for (uint32_t i = first + std::max(n, 1u); i < last && imp.marks; ++i) {
    Page& p = imp.table[i];
    // Another thread may have stored to it by now. One that fetches it for a store looks again.
    const bool in_use = p.state != PageState::kClean && p.state != PageState::kAbsent &&
                        p.state != PageState::kFetching && p.state != PageState::kStale;
    const uint8_t epoch = in_use ? 0 : p.mark.take();
    if (epoch != 0) unused.push_back({i, epoch});
  }
  for (uint32_t i = first; i < last; ++i) imp.table[i].unlock();
  if (!unused.empty()) unmark(view.import, unused);
  return n;
}

// Who stores a lot takes home what is behind him, so that the twins in use, and what is left to the
// next barrier, do not grow with it: stores are faster than the timer, and may be faster than the
// wire, which is waited for, but not in vain again and again. One thread at a time; what it has
// taken from the list goes, since a barrier that no longer finds it there waits for its batch alone
// (rule 8).
void Importer::write_behind(const std::shared_ptr<Import>& imp) {
  if (fault_point_fails("no_write_behind")) return;
  const bool soon = fault_point_fails("write_behind_soon");
  const size_t most = soon ? 4 : kMostDirty, behind = soon ? 2 : kBehind;
  {
    Guard g(imp->dirty_mu);
    if (imp->dirty.size() < most) return;
  }
  if (now() < imp->no_room_before.load(std::memory_order_relaxed)) return;
  const Turn turn(imp->writing_behind);
  if (!turn.mine) return;
  for (const Deadline deadline = Deadline::in(kWaitForRoom);;) {
    auto open = open_batches();
    std::erase_if(open, [&](auto& batch) { return batch->import != imp; });
    if (open.empty() ||
        (open.size() < kMostBatches && imp->link->pending() < Collector::kMostUnanswered)) {
      break;
    }
    (void)await(*open.front(), {deadline});
    if (open.front()->done.done()) continue;
    imp->no_room_before.store(now() + kSecond, std::memory_order_relaxed);
    return;
  }
  // The batch is begun before pages leave the list, as in barrier().
  Collector out(*this, imp, begin_batch(imp));
  std::vector<uint32_t> pages;
  {
    Guard g(imp->dirty_mu);
    if (imp->dirty.size() < most) return;  // others have been here
    const auto end = imp->dirty.begin() + static_cast<ptrdiff_t>(behind);
    pages.assign(imp->dirty.begin(), end);
    imp->dirty.erase(imp->dirty.begin(), end);
    imp->aged -= std::min(imp->aged, behind);
  }
  fault_point("mutation_behind_taken");
  out.allow_runs();
  std::sort(pages.begin(), pages.end());
  {
    Guard views(imp->views_mu);
    for (std::span<const uint32_t> rest = pages; !rest.empty();) {
      rest = rest.subspan(write_back_run(*imp, rest, out));
    }
  }
  out.start_runs();
}

}  // namespace cmi::memory
