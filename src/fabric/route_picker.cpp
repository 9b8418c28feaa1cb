// See route_picker.hpp.
#include "fabric/route_picker.hpp"

#include <algorithm>

namespace cmi::fabric {

namespace {
// How long a hello may go unanswered before it is sent anew: as long as all tries before it took
// together, so that a slow network gets the time that it needs. But there are several tries before
// a home that cannot be reached counts as dead.
constexpr Nanos kWelcomeWait = kSecond, kLongestWelcomeWait = 2 * kSecond;
constexpr int kTriesInALife = 4;
// With several routes: the first round over all of them takes kRound or little more, however many
// there are, and each later round twice as long as the one before.
constexpr Nanos kRound = 2 * kSecond, kLeastRouteWait = 50 * kMilli,
                kLongestRouteWait = 500 * kMilli;
constexpr size_t kMostRounds = 8;
}  // namespace

RoutePicker::RoutePicker(std::vector<Route> routes, Nanos dead_after, Taking taking)
    : routes_(std::move(routes)),
      cas_(std::all_of(routes_.begin(), routes_.end(), [](const Route& r) { return r.cas; })),
      longest_wait_(std::clamp(dead_after / kTriesInALife, kWelcomeWait, kLongestWelcomeWait)),
      taking_(std::move(taking)) {}

bool RoutePicker::take() {
  if (!taken_ && taking_ && !taking_(current())) return false;
  taken_ = true;
  return true;
}

bool RoutePicker::try_next() {
  ++in_vain_;
  if (routes_.size() == 1) return false;
  index_.store((index_.load(std::memory_order_relaxed) + 1) % routes_.size(),
               std::memory_order_relaxed);
  taken_ = false;
  return true;
}

bool RoutePicker::no_listener() {
  if (++without_listener_in_a_row_ >= routes_.size()) {
    without_listener_.store(true, std::memory_order_relaxed);
  }
  return try_next();
}

bool RoutePicker::no_endpoint() {
  without_listener_in_a_row_ = 0;
  ++without_endpoint_in_a_row_;
  // The local address may have gone for good.
  return routes_.size() > 1 && try_next();
}

void RoutePicker::found_listener() {
  without_listener_in_a_row_ = 0;
  without_listener_.store(false, std::memory_order_relaxed);
}

bool RoutePicker::not_welcomed() { return try_next(); }

Nanos RoutePicker::patience(Nanos tried) const {
  if (routes_.size() == 1) return std::clamp(tried, kWelcomeWait, longest_wait_);
  const Nanos per_route =
      std::clamp(kRound / static_cast<Nanos>(routes_.size()), kLeastRouteWait, kLongestRouteWait);
  return std::min(per_route << std::min(in_vain_ / routes_.size(), kMostRounds), longest_wait_);
}

}  // namespace cmi::fabric
