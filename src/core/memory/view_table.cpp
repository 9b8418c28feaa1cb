// Lookup and republication.
#include "core/memory/view_table.hpp"

#include <algorithm>

namespace cmi::memory {

std::shared_ptr<const View> ViewTable::find(const void* addr) {
  auto* a = static_cast<const std::byte*>(addr);
  readers_.fetch_add(1, std::memory_order_seq_cst);
  Table* t = current_.load(std::memory_order_seq_cst);
  auto it = std::upper_bound(t->begin(), t->end(), a,
                             [](const std::byte* x, const auto& v) { return x < v->addr; });
  std::shared_ptr<const View> found;
  if (it != t->begin()) {
    auto& v = *std::prev(it);
    if (a < v->addr + v->len) found = v;
  }
  readers_.fetch_sub(1, std::memory_order_release);
  return found;
}

void ViewTable::publish(std::unique_ptr<Table> next) {
  std::unique_ptr<Table> old(current_.exchange(next.release(), std::memory_order_seq_cst));
  // Readers that came later use the new table; waiting for zero may wait for a few of those too.
  Backoff backoff;
  while (readers_.load(std::memory_order_seq_cst) != 0) backoff.pause();
}

void ViewTable::insert(std::shared_ptr<const View> view) {
  Guard g(mu_);
  auto next = std::make_unique<Table>(*current_.load());
  auto at = std::upper_bound(next->begin(), next->end(), view->addr,
                             [](const std::byte* x, const auto& v) { return x < v->addr; });
  next->insert(at, std::move(view));
  publish(std::move(next));
}

void ViewTable::erase(const std::shared_ptr<const View>& view) {
  Guard g(mu_);
  auto next = std::make_unique<Table>(*current_.load());
  std::erase(*next, view);
  publish(std::move(next));
}

}  // namespace cmi::memory
