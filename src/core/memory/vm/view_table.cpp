// Lookup and republication.
#include "core/memory/vm/view_table.hpp"

#include <algorithm>

namespace cmi::memory {

[[gnu::hot]] std::shared_ptr<const View> ViewTable::find(const void* addr) {
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

std::vector<std::shared_ptr<const View>> ViewTable::within(const std::byte* addr, size_t len) {
  Guard g(mu_);
  Table found;
  for (const auto& v : *current_.load()) {
    if (v->addr < addr + len && addr < v->addr + v->len) found.push_back(v);
  }
  return found;
}

void ViewTable::publish(std::unique_ptr<Table> next) {
  std::unique_ptr<Table> old(current_.exchange(next.release(), std::memory_order_seq_cst));
  // Readers that came later use the new table; waiting for zero may wait for a few of those too.
  Backoff backoff;
  while (readers_.load(std::memory_order_seq_cst) != 0) backoff.pause();
}

bool ViewTable::free_at(const Table& table, const std::byte* addr, size_t len) {
  return std::none_of(table.begin(), table.end(), [&](const auto& v) {
    return v->addr < addr + len && addr < v->addr + v->len;
  });
}

void ViewTable::place(Table* table, std::shared_ptr<const View> view) {
  auto at = std::upper_bound(table->begin(), table->end(), view->addr,
                             [](const std::byte* x, const auto& v) { return x < v->addr; });
  table->insert(at, std::move(view));
}

template <class Which>
void ViewTable::cut(Table* table, std::byte* addr, size_t len, Which which) {
  Table hit;
  for (const auto& v : *table) {
    if (v->addr < addr + len && addr < v->addr + v->len && which(*v)) hit.push_back(v);
  }
  for (const auto& v : hit) {
    std::erase(*table, v);
    const auto keep = [&](std::byte* from, std::byte* to) {
      if (from >= to) return;
      auto piece = std::make_shared<View>(*v);
      piece->addr = from;
      piece->len = static_cast<size_t>(to - from);
      piece->offset += static_cast<size_t>(from - v->addr);
      if (piece->whole == nullptr) piece->whole = v;
      place(table, std::move(piece));
    };
    keep(v->addr, addr);
    keep(addr + len, v->addr + v->len);
  }
}

void ViewTable::insert(std::shared_ptr<const View> view) {
  Guard g(mu_);
  auto next = std::make_unique<Table>(*current_.load());
  if (!free_at(*next, view->addr, view->len)) {
    cut(next.get(), view->addr, view->len, [](const View&) { return true; });
  }
  place(next.get(), std::move(view));
  publish(std::move(next));
}

bool ViewTable::insert_if_free(std::shared_ptr<const View> view) {
  Guard g(mu_);
  if (!free_at(*current_.load(), view->addr, view->len)) return false;
  auto next = std::make_unique<Table>(*current_.load());
  place(next.get(), std::move(view));
  publish(std::move(next));
  return true;
}

void ViewTable::cut(const std::shared_ptr<const View>& view, std::byte* addr, size_t len) {
  Guard g(mu_);
  auto next = std::make_unique<Table>(*current_.load());
  cut(next.get(), addr, len, [&](const View& v) { return &v == view.get() || v.whole == view; });
  publish(std::move(next));
}

void ViewTable::erase(const std::shared_ptr<const View>& view) {
  Guard g(mu_);
  auto next = std::make_unique<Table>(*current_.load());
  std::erase_if(*next, [&](const auto& v) { return v == view || v->whole == view; });
  publish(std::move(next));
}

}  // namespace cmi::memory
