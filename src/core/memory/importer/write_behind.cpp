// A thread that stores to many pages in order writes back the oldest of them itself. Runs in the
// SIGBUS handler or in a fault thread, all signals blocked, no page locked.
#include <algorithm>
#include <span>
#include <vector>

#include "core/base/fault_point.hpp"
#include "core/memory/importer/await_home.hpp"
#include "core/memory/importer/collector.hpp"
#include "core/memory/importer/write_back.hpp"

namespace cmi::memory {

namespace {
// Of dirty pages, in the list of one import: from so many on the oldest go home, some at a time.
constexpr size_t kMostDirty = 2048, kBehind = 512;
constexpr size_t kMostOpen = 8;  // that are not over: those of runs have a message each
constexpr Nanos kWaitForRoom = 100 * kMilli;
}  // namespace

bool await_room_behind(ImporterCore& core, const std::shared_ptr<Import>& imp, Deadline deadline) {
  for (;;) {
    auto open = core.write_backs.open();
    std::erase_if(open, [&](auto& write_back) { return write_back->import != imp; });
    if (open.empty() || (open.size() < kMostOpen &&
                         imp->link->pending() < Collector::most_unanswered(*imp->link))) {
      return true;
    }
    (void)await(core, *open.front(), {deadline});
    if (!open.front()->done.done()) return false;
  }
}

// Write-behind bounds the twins in use and the work of the next barrier, since stores are faster
// than the timer. They may be faster than the network too: then the thread waits, but not again and
// again without success. One thread at a time. The pages that it has taken from the list must be
// sent: a barrier that does not find them there waits for their write-back alone (rule 8).
void write_behind(ImporterCore& core, const std::shared_ptr<Import>& imp) {
  if (fault_point_fails("no_write_behind")) return;
  const bool soon = fault_point_fails("write_behind_soon");
  const size_t most = soon ? 4 : kMostDirty, behind = soon ? 2 : kBehind;
  if (imp->dirty.listed.size() < most) return;
  WriteBehindTurn& turns = imp->in_order.write_behind;
  if (!turns.may_try(now())) return;
  const WriteBehindTurn::Taken turn(turns);
  if (!turn.mine()) return;
  if (!await_room_behind(core, imp, Deadline::in(kWaitForRoom))) {
    turns.no_room_before(now() + kSecond);
    return;
  }
  // The write-back is begun before pages leave the list, as in Publishing::collect().
  Collector out(core, imp, core.write_backs.begin(imp));
  std::vector<uint32_t> pages;
  if (!imp->dirty.listed.take_oldest(behind, most, &pages)) return;  // others have been here
  fault_point("mutation_behind_taken");
  out.allow_runs();
  std::sort(pages.begin(), pages.end());
  write_back_sorted(core, *imp, pages, out);
  out.start_runs();
}

}  // namespace cmi::memory
