// Write-backs of hot pages (rule 27): a page is compared with its twin while the process goes on
// storing to it; what differs is sent and becomes the twin. The page stays writable, its dirty
// intent stays at the home. Application threads and the service thread, all signals blocked.
#include <algorithm>
#include <span>
#include <vector>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/collector.hpp"
#include "core/memory/importer/write_back.hpp"
#include "core/memory/page/compare.hpp"

namespace cmi::memory {

namespace {

// They are written back like pages that are stored to for the first time, most of them without a
// difference.
void cool(ImporterCore& core, Import& imp, std::vector<uint32_t>& pages, Collector& out) {
  std::sort(pages.begin(), pages.end());
  write_back_sorted(core, imp, pages, out);
}

}  // namespace

bool is_hot(Page& page) {
  page.lock();
  const bool hot = page.state == PageState::kDirty && page.heat.hot();
  page.unlock();
  return hot;
}

bool send_hot(ImporterCore& core, Import& imp, std::span<const uint32_t> pages, Collector& out,
              const Patience* patience, std::vector<uint32_t>* busy, Which which) {
  std::vector<uint32_t> cooled;
  bool some_left = false;
  for (uint32_t index : pages) {
    if (out.full()) {
      if (patience == nullptr) break;
      if (!out.await_room(*patience)) return false;
    }
    Page& p = imp.page(index);
    // The lock is a full fence: what the calling thread stored before is compared.
    p.lock();
    if (p.state != PageState::kDirty || !p.heat.hot()) {
      some_left = true;
    } else if (p.in_flight) {
      busy->push_back(index);
    } else if (which == Which::kAll || !out.differs(index, core.twins.at(p.twin)) ||
               p.heat.is_due()) {
      const bool changed = out.add_hot(index, core.twins.at(p.twin)) != 0;
      // The twin is another one than a swap under way may have seen (rule 12).
      if (changed) ++p.generation;
      p.in_flight = changed;
      if (p.heat.compared(changed)) cooled.push_back(index);
    }
    p.unlock();
  }
  if (!cooled.empty()) cool(core, imp, cooled, out);
  if (!cooled.empty() || some_left)
    imp.dirty.hot.forget([&](uint32_t i) { return !is_hot(imp.page(i)); });
  return true;
}

void take_dense(ImporterCore& core, Import& imp, std::vector<uint32_t>* hot,
                std::vector<uint32_t>* pages) {
  const auto dense = [&](uint32_t index) {
    Page& p = imp.page(index);
    p.lock();
    const bool whole = p.state == PageState::kDirty && p.heat.hot() && !p.in_flight &&
                       all_differ(imp.page_data(index), core.twins.at(p.twin));
    p.unlock();
    return whole;
  };
  std::vector<uint32_t> left;
  for (size_t at = 0, n = 0; at < hot->size(); at += n) {
    const uint32_t first = (*hot)[at];
    for (n = 0; at + n < hot->size() && (*hot)[at + n] == first + n &&
                dense(static_cast<uint32_t>(first + n));)
      ++n;
    if (n >= Collector::kMinRun) {
      for (size_t i = 0; i < n; ++i) pages->push_back((*hot)[at + i]);
    } else {
      n = std::max<size_t>(n, 1);
      for (size_t i = 0; i < n; ++i) left.push_back((*hot)[at + i]);
    }
  }
  hot->swap(left);
}

}  // namespace cmi::memory
