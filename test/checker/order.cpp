// Searches in the order of a cell's values.
#include "checker/order.hpp"

#include <algorithm>
#include <deque>
#include <numeric>

namespace cmi::checker {

void Order::add_swaps(const std::vector<Swap>& swaps) {
  std::deque<std::pair<uint32_t, uint32_t>> fresh;
  for (uint32_t a = 0; a < n_; ++a) {
    for (uint32_t b = 0; b < n_; ++b) {
      if (has(a, b)) fresh.emplace_back(a, b);
    }
  }
  const auto derive = [&](uint32_t a, uint32_t b, Place swap, uint32_t from, uint32_t to) {
    if (has(a, b)) return;
    add(a, b, {Rule::kSwap, swap, {}, from, to});
    fresh.emplace_back(a, b);
  };
  while (!fresh.empty()) {
    const auto [a, b] = fresh.front();
    fresh.pop_front();
    for (const Swap& swap : swaps) {
      if (swap.taken == a && swap.put != b) derive(swap.put, b, swap.place, a, b);
      if (swap.put == b && swap.taken != a) derive(a, swap.taken, swap.place, a, b);
    }
  }
}

bool Order::is_one() const {
  // Takes away one that nothing left is older than, until all are gone.
  std::vector<uint32_t> left(n_), olders(n_, 0);
  std::iota(left.begin(), left.end(), 0);
  for (uint32_t b = 0; b < n_; ++b) {
    for (uint32_t a = 0; a < n_; ++a) olders[b] += has(a, b);
  }
  while (!left.empty()) {
    const auto oldest =
        std::find_if(left.begin(), left.end(), [&](uint32_t v) { return olders[v] == 0; });
    if (oldest == left.end()) return false;
    for (uint32_t b = 0; b < n_; ++b) olders[b] -= has(*oldest, b);
    left.erase(oldest);
  }
  return true;
}

std::vector<uint32_t> Order::shortest_cycle() const {
  const uint32_t unreached = n_;
  std::vector<uint32_t> best;
  for (uint32_t start = 0; start < n_ && best.size() != 2; ++start) {
    std::vector<uint32_t> from(n_, unreached);
    std::deque<uint32_t> queue{start};
    while (!queue.empty() && from[start] == unreached) {
      const uint32_t a = queue.front();
      queue.pop_front();
      for (uint32_t b = 0; b < n_; ++b) {
        if (!has(a, b) || from[b] != unreached) continue;
        from[b] = a;
        queue.push_back(b);
      }
    }
    if (from[start] == unreached) continue;
    std::vector<uint32_t> cycle{start};
    for (uint32_t at = from[start]; at != start; at = from[at]) cycle.push_back(at);
    if (best.empty() || cycle.size() < best.size()) best = cycle;
  }
  std::reverse(best.begin(), best.end());
  return best;
}

}  // namespace cmi::checker
