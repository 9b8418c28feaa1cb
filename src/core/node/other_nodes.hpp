// The other nodes in the runtime folder: what they have taken of the machine's memory, and the end
// of what their dead have left. Reads without locks; reaps under the lock of the node that is
// reaped, so no caller may hold the lock of its own.
// Threads: any; no state.
#pragma once

#include <string>
#include <utility>

#include "core/base/clock.hpp"
#include "core/node/folder.hpp"
#include "core/node/seat.hpp"

namespace cmi::node {

inline Status status_of(Status s) { return s; }
template <class T>
Status status_of(const Result<T>& r) {
  return r.status();
}

// Bytes that the segments and reservations of all other nodes count. The sum may mix old and new.
uint64_t charged_of_others(const Folder& own);

// Cleans up after the dead of all nodes in the folder but `own` (null: of all). A node whose
// registry stays locked for so long is left out. True: there were dead ones.
inline constexpr Nanos kMoment = 50 * kMilli;
bool reap_nodes(const std::string& runtime_dir, const FileName* own, Nanos wait = kMoment);

// What `attempt` gives; where that is kNoMem, and the dead of other nodes have been cleaned up
// after, what it gives then.
template <class Attempt>
auto after_the_dead(const Seat& seat, Attempt attempt) {
  auto first = attempt();
  if (status_of(first) != Status::kNoMem) return first;
  const Folder& folder = seat.registry->folder();
  return reap_nodes(folder.runtime_dir, &folder.name) ? attempt() : std::move(first);
}

}  // namespace cmi::node
