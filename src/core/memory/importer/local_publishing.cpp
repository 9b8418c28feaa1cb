// Stores to mapped pages, until others have heard of them.
#include <utility>

#include "core/memory/importer/local_views.hpp"

namespace cmi::memory {

bool LocalViews::any_in_flight() {
  Guard g(mu_);
  return !in_flight_.empty();
}

bool LocalViews::alone() { return open_ && control_.alone() && !control_.is_cut_off(); }

// They are stored to no more, and not in stored_. Without `hot`: but for those that are.
std::vector<PageRange> LocalViews::protect_stored(bool hot) {
  std::vector<PageRange> taken = hot ? stored_.all() : hot_.missing(stored_.all());
  for (const PageRange& r : taken) {
    swappable_.remove(r);
    for (const Mapped& view : views_) {
      watch_.protect(view.at + size_t{r.first} * kPageSize, size_t{r.count} * kPageSize);
    }
    forget_stores(r);
  }
  any_stored_.store(!stored_.empty(), std::memory_order_seq_cst);
  return taken;
}

// Nobody had cached a page when these had been protected, so an import that caches one later reads
// what was stored.
void LocalViews::forget_published(const std::vector<PageRange>& pages, Taker taker) {
  if (taker == Taker::kTimer) recent_ = std::exchange(hot_, {});
  for (const PageRange& r : pages) {
    if (taker == Taker::kBarrier) recent_.add(r);
    for (uint32_t i = 0; i < r.count; ++i) clear_mark(r.first + i);
  }
}

// The word is read after the stores, and after the protection: the home takes it back before it
// lets anybody read a page.
std::vector<PageRange> LocalViews::take(Taker taker) {
  Guard g(mu_);
  bool silent = taker != Taker::kOther && alone();
  std::vector<PageRange> taken = protect_stored(!silent || taker == Taker::kTimer);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (silent && alone()) {
    forget_published(taken, taker);
    return {};
  }
  const std::vector<PageRange> rest = protect_stored(true);
  taken.insert(taken.end(), rest.begin(), rest.end());
  hot_.clear();
  recent_.clear();
  for (const PageRange& r : taken) {
    for (uint32_t i = 0; i < r.count; ++i) ++in_flight_[r.first + i];
  }
  return taken;
}

bool LocalViews::published() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Guard g(mu_);
  return alone() && cold_count_ == 0;
}

// What is stored here cannot change meanwhile, so all else that is dirty is in other imports.
bool LocalViews::all_published() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Guard g(mu_);
  return alone() && cold_count_ == 0 && dirty_->count() == stored_count_;
}

void LocalViews::answered(const std::vector<PageRange>& pages) {
  Guard g(mu_);
  for (const PageRange& r : pages) {
    for (uint32_t i = 0; i < r.count; ++i) {
      const auto it = in_flight_.find(r.first + i);
      if (it == in_flight_.end()) continue;
      if (--it->second == 0) in_flight_.erase(it);
      clear_mark(r.first + i);
    }
  }
}

void LocalViews::clear_mark(uint32_t page) {
  if (control_ && !stored_.contains(page) && !in_flight_.contains(page)) control_.mark(page, false);
}

bool LocalViews::settled(PageRange pages) {
  Guard g(mu_);
  const auto next = in_flight_.lower_bound(pages.first);
  const bool flying = next != in_flight_.end() && next->first - pages.first < pages.count;
  return !flying && stored_.in(pages).empty();
}

}  // namespace cmi::memory
