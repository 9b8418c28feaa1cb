// See routes.hpp.
#include "fabric/routes.hpp"

#include <algorithm>
#include <tuple>

#include "fabric/reach.hpp"

namespace cmi::fabric {

namespace {

// The lower the better, from left to right.
struct Rank {
  enum Class : uint8_t { kLoopback, kNetwork, kNoWay, kWhoseLoopback };
  Class kind;
  size_t provider;  // the first of our listeners that has it
  Distance distance;
  size_t ours, theirs;
  auto operator<=>(const Rank&) const = default;
};

Rank::Class class_of(bool ours_loopback, bool theirs_loopback, SameMachine same,
                     Distance distance) {
  if (theirs_loopback && same != SameMachine::kYes) return Rank::kWhoseLoopback;
  if (theirs_loopback && ours_loopback) return Rank::kLoopback;
  return distance == Distance::kNoWay ? Rank::kNoWay : Rank::kNetwork;
}

}  // namespace

std::vector<std::pair<size_t, size_t>> routes_between(const std::vector<ListenerAddress>& ours,
                                                      const std::vector<ListenerAddress>& theirs,
                                                      SameMachine same, const char** why) {
  *why = "it offers no address of a provider that is open here";
  std::vector<Rank> ranks;
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto first = std::find_if(ours.begin(), ours.end(), [&](const ListenerAddress& d) {
      return d.provider == ours[i].provider;
    });
    for (size_t j = 0; j < theirs.size(); ++j) {
      if (theirs[j].provider != ours[i].provider) continue;
      if (!is_listener(ours[i].blob, theirs[j].blob)) {
        *why = "an address in its handle is none of this provider's";
        continue;
      }
      const bool there = is_loopback(theirs[j].blob);
      if (there && same == SameMachine::kNo) {
        *why = "it listens on loopback only, which no other machine reaches: CMI_ADDRESS there";
        continue;
      }
      if (!there && same == SameMachine::kNo && is_of_this_machine(theirs[j].blob)) {
        *why =
            "this machine has the address at which the other one listens: who goes there meets "
            "itself";
        continue;
      }
      if (const char* w = why_out_of_reach(ours[i].blob, theirs[j].blob); w != nullptr) {
        *why = w;
        continue;
      }
      const Distance far = distance(ours[i].blob, theirs[j].blob);
      ranks.push_back({class_of(is_loopback(ours[i].blob), there, same, far),
                       static_cast<size_t>(first - ours.begin()), far, i, j});
    }
  }
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::pair<size_t, size_t>> routes;
  routes.reserve(ranks.size());
  for (const Rank& r : ranks) routes.emplace_back(r.ours, r.theirs);
  return routes;
}

}  // namespace cmi::fabric
