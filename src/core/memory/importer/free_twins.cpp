// What is done when all twins that there may be are in use: stores are published early, so that a
// first store waits for the network instead of failing. Runs in the SIGBUS handler or in a fault
// thread, all signals blocked, no page locked.
#include <algorithm>
#include <vector>

#include "core/base/log.hpp"
#include "core/memory/importer/await_home.hpp"
#include "core/memory/importer/collector.hpp"
#include "core/memory/importer/write_back.hpp"

namespace cmi::memory {

namespace {

constexpr size_t kSome = 512;  // pages of an import that go home at once
constexpr Nanos kTellEvery = 10 * kSecond;

void tell(ImporterCore& core) {
  count(core.parts.stats.twins_short);
  const Nanos t = now();
  Nanos told = core.traffic.no_twin_told_at.load(std::memory_order_relaxed);
  if (told != 0 && t - told < kTellEvery) return;
  if (!core.traffic.no_twin_told_at.compare_exchange_strong(told, t)) return;
  trace(kFacMem, kWarn,
        "all copies of dirty pages are in use, {} MiB, a part of CMI_MEM_MAX: stores are published "
        "early",
        (TwinPool::chunks_of(core.parts.mem_max) * TwinPool::kChunkSize) >> 20);
}

// The write-back is begun before pages leave the list, as in Publishing::collect(). Pages are
// protected first, as where a cache makes room: each gives its twin back.
void send_oldest(ImporterCore& core, const std::shared_ptr<Import>& imp, Deadline deadline) {
  if (imp->views.local.local() || !await_room_behind(core, imp, deadline)) return;
  Collector out(core, imp, core.write_backs.begin(imp));
  std::vector<uint32_t> pages;
  imp->dirty.listed.take_some(kSome, &pages);
  const bool hot = pages.empty();
  if (hot) pages = imp->dirty.hot.some(kSome);
  std::sort(pages.begin(), pages.end());
  out.allow_runs();
  write_back_sorted(core, *imp, pages, out);
  out.start_runs();
  if (hot) imp->dirty.hot.forget([&](uint32_t i) { return !is_hot(imp->page(i)); });
}

}  // namespace

bool free_twins(ImporterCore& core, Deadline deadline) {
  tell(core);
  if (!core.dirty.any() && core.write_backs.count() == 0) return false;
  for (auto imp = core.imports.next_dirty(0); imp != nullptr && !core.twins.any_free();
       imp = core.imports.next_dirty(imp->instance)) {
    send_oldest(core, imp, deadline);
  }
  // Bulk writes keep theirs until they are answered, and a page whose earlier write-back is out
  // cannot go.
  if (!core.twins.any_free()) (void)await(core, core.write_backs.open(), {deadline});
  return !deadline.passed();
}

}  // namespace cmi::memory
