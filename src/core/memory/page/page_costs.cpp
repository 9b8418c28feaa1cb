#include "core/memory/page/page_costs.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "core/memory/page/shared_regions.hpp"

namespace cmi::memory {

namespace {
// Pages of one message that are counted one by one: a publication of thousands costs by itself, and
// none of its pages more than the others.
constexpr uint32_t kMostCounted = 32;

template <class Each>
void each_page(std::span<const PageRange> ranges, Each&& each) {
  uint32_t left = kMostCounted;
  for (const PageRange& r : ranges) {
    const uint32_t n = std::min(r.count, left);
    for (uint32_t i = 0; i < n; ++i) each(r.first + i);
    left -= n;
    if (left == 0) return;
  }
}

void add_kind(node::PageCost* cost, PageCosts::Kind kind) {
  switch (kind) {
    case PageCosts::Kind::kLoadMiss:
      ++cost->load_misses;
      break;
    case PageCosts::Kind::kStoreMiss:
      ++cost->store_misses;
      break;
    case PageCosts::Kind::kFirstStore:
      ++cost->first_stores;
      break;
  }
}

template <size_t kEntries>
std::vector<node::PageCostLine> lines_of(const TopPages<node::PageCost, kEntries>& top,
                                         uint32_t pages_each) {
  std::vector<node::PageCostLine> lines;
  for (const auto& e : top.all()) lines.push_back({e.page * pages_each, e.cost});
  return lines;
}
}  // namespace

void PageCosts::count(uint32_t page, Kind kind) {
  if (!mu_.try_lock()) return;
  add_kind(&pages_.add(page), kind);
  add_kind(&regions_.add(region_of(page)), kind);
  mu_.unlock();
}

void PageCosts::count_notice(std::span<const PageRange> pages, bool useless) {
  if (!mu_.try_lock()) return;
  auto* const by_page = &pages_;
  auto* const by_region = &regions_;
  uint32_t region = UINT32_MAX;
  each_page(pages, [&](uint32_t page) {
    node::PageCost& of_page = by_page->add(page);
    ++of_page.notices;
    if (useless) ++of_page.useless;
    if (std::exchange(region, region_of(page)) == region) return;
    node::PageCost& of_region = by_region->add(region);
    ++of_region.notices;
    if (useless) ++of_region.useless;
  });
  mu_.unlock();
}

void PageCosts::report(node::ImportLine* out) {
  Guard g(mu_);
  out->pages = lines_of(pages_, 1);
  out->regions = lines_of(regions_, kRegionPages);
}

PageWriters::Writer& PageWriters::Cost::writer(const ContextId& by) {
  const auto end = writers.begin() + known;
  const auto at = std::find_if(writers.begin(), end, [&](const Writer& w) { return w.by == by; });
  if (at != end) return *at;
  more = more || known == kMost;
  Writer& taken =
      known < kMost ? writers[known++]
                    : *std::min_element(writers.begin(), end, [](const Writer& a, const Writer& b) {
                        return a.publications < b.publications;
                      });
  taken = {by, 0, {}};
  return taken;
}

PageWriters::Table* PageWriters::table() {
  if (table_ == nullptr) table_.reset(new (std::nothrow) Table);
  return table_.get();
}

void PageWriters::count_words(uint32_t page, const ContextId& by, const StoredWords& words) {
  if (!mu_.try_lock()) return;
  if (Table* const t = table(); t != nullptr) t->add(page).writer(by).words |= words;
  mu_.unlock();
}

void PageWriters::count_publication(std::span<const PageRange> pages, const ContextId& by) {
  if (!mu_.try_lock()) return;
  if (Table* const t = table(); t != nullptr) {
    each_page(pages, [&](uint32_t page) {
      Cost& cost = t->add(page);
      ++cost.writer(by).publications;
      if (cost.publications++ != 0 && cost.last != by) ++cost.bounces;
      cost.last = by;
    });
  }
  mu_.unlock();
}

void PageWriters::count_notice(std::span<const PageRange> pages) {
  if (!mu_.try_lock()) return;
  if (Table* const t = table_.get(); t != nullptr) {
    each_page(pages, [&](uint32_t page) {
      if (Cost* const cost = t->find(page); cost != nullptr) ++cost->notices;
    });
  }
  mu_.unlock();
}

void PageWriters::report(node::HomeLine* out) {
  Guard g(mu_);
  if (table_ == nullptr) return;
  for (const auto& e : table_->all()) {
    const Cost& c = e.cost;
    node::PublishedPageLine& line = out->pages.emplace_back();
    line = {e.page, c.publications, c.notices, c.bounces, c.more, {}};
    for (uint32_t i = 0; i < c.known; ++i) {
      node::PageWriterLine& writer = line.writers.emplace_back();
      writer.by = c.writers[i].by;
      writer.publications = c.writers[i].publications;
      for (size_t w = 0; w < c.writers[i].words.size(); ++w) {
        if (c.writers[i].words[w]) writer.words[w / 64] |= uint64_t{1} << w % 64;
      }
    }
  }
}

}  // namespace cmi::memory
