// What the fault sweep plays: points, who is in the play, and what a point that fails takes away.
#pragma once

#include <algorithm>
#include <compare>
#include <iterator>
#include <string_view>

#include "system/calls.hpp"

namespace cmi::test::sweep {

struct Point {
  std::string_view name;
  bool fails;  // takes an error path; else a place to die at
};

enum Role { kHome, kSecond, kPeer, kThird, kRoles };  // kSecond: on the home's node, too

// What a point that fails takes away, as calls and accesses say it. All else is as ever.
struct Lack {
  std::string_view points;  // how their names begin
  cmi_error error = CMI_ERR_NONE;
  int cause = Fault::kNone;
};
inline constexpr Lack kLacks[] = {
    {"emulate_", CMI_ERR_INVAL},
    {"adopted_", CMI_ERR_NOMEM},
    {"enable_no_memory", CMI_ERR_NOMEM},
    {"kernel_has_larger_pages", CMI_ERR_NOTSUPP},
    {"sharers_full", CMI_ERR_NOMEM},  // at the home; its importer is told
    {"local_no_memory", CMI_ERR_NONE, CMI_ERROR_TRANSIENT},
    // All of the segment is in flux, until it is recovered.
    {"cover_no_memory", CMI_ERR_NONE, CMI_ERROR_CONSIST},
    // Who waits for the answer is told that its stores may be lost, and needs the token anew.
    {"round_never_over", CMI_ERR_STORE, CMI_ERROR_TOKEN},
};
inline Lack lack_of(const Point& point) {
  for (const Lack& lack : kLacks) {
    if (point.fails && point.name.starts_with(lack.points)) return lack;
  }
  return {};
}

// Who comes past a point. A name stands for all points that begin with it.
inline constexpr std::string_view kPassedAtHome[] = {"node.",
                                                     "home_",
                                                     "server_",
                                                     "present_",
                                                     "swap_fetch_",
                                                     "adopt",
                                                     "give_back_",
                                                     "write_through_",
                                                     "sharers_full",
                                                     "break_notified",
                                                     "cover_no_memory",
                                                     "round_never_over",
                                                     "break_before_shrink",
                                                     "publish_before_page",
                                                     "publish_notified",
                                                     "revoke_notified",
                                                     "revoke_before_close",
                                                     "local_grant_"};
// Passed only where importers map the pages of a home on their machine.
inline constexpr std::string_view kOfMapped[] = {"local_", "ring_"};
inline constexpr std::string_view kOfTokens = "node.token.",
                                  kOfAttachments = "node.retire.attachment",
                                  kOfBulkWrites = "bulk_write_", kOfFlux = "in_flux_";

// What a play does beside the common workload, for the sake of its point.
struct Circumstances {
  bool unanswered = false;  // the one fault with which a home lives on and owes an answer for ever
  bool pauses = false;  // passed only while the home is silent for longer than its importers' lease
  bool floods = false;  // passed only when more is to be written back than the home answers in time
  // Passed only by many stores in order, or the barrier behind them: beside load, or where faults
  // are slow, they take longer than the timer waits before it takes the first of them.
  bool in_order = false;
  bool mapped = false;  // passed only where importers map the pages of homes on their machine

  explicit Circumstances(std::string_view point)
      : unanswered(point == "round_never_over"),
        pauses(point.starts_with("lease_") || point == "listener_out_of_reach"),
        floods(point == "collector_never_full" || point == "few_twins"),
        in_order(point.starts_with(kOfBulkWrites) || point.ends_with("_write_behind")),
        mapped(std::any_of(std::begin(kOfMapped), std::end(kOfMapped),
                           [&](std::string_view begin) { return point.starts_with(begin); })) {}
  auto operator<=>(const Circumstances&) const = default;
};

}  // namespace cmi::test::sweep
