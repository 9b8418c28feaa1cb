// Importers of segments: how they become sharers, and how they are forgotten.
#pragma once

#include <vector>

#include "core/memory/home/home_core.hpp"
#include "core/memory/home/local_grants.hpp"
#include "core/memory/home/segment_lock.hpp"

namespace cmi::memory {

bool imports_any(HomeCore& home, const ContextId& client) CMI_REQUIRES(home.mu);
// Under one of the locks that guard the sharers.
bool has_import(const Segment& s, const ContextId& client);
bool imports(HomeCore& home, const Segment& s, const ContextId& client) CMI_EXCLUDES(home.mu);
// A segment is imported in one way at a time.
bool may_import(const Segment& s, bool write_through);
// Null: there are too many.
Sharer* add_sharer(HomeCore& home, Segment& s, const fabric::ClientInfo& client, uint32_t instance,
                   bool write_through) CMI_REQUIRES(home.mu);
// Sharers are added and forgotten under the segment's lock `mu` and HomeCore::mu.
template <class Predicate>
void forget_sharers(HomeCore& home, Segment& s, Predicate which) CMI_REQUIRES(home.mu) {
  const bool was_shared = s.owned && s.shared();
  for (auto& h : s.sharers) {
    if (which(h)) s.directory.drop_all(h.regions);
  }
  s.sharers.erase_if(which);
  tell_if_alone(home, s);
  home.shared_segments.changed(was_shared, s.owned && s.shared());
}
// First the client is no sharer of any segment, then its answers are awaited no more: so nothing is
// sent to it in between that would be waited for.
void forget_client(HomeCore& home, const ContextId& client, Finished* done) CMI_EXCLUDES(home.mu);
// Of each segment that the client imports, with both of the segment's locks held.
template <class Visit>
void each_imported(HomeCore& home, const ContextId& client, Visit visit) CMI_EXCLUDES(home.mu) {
  for (SegmentPtr s = home.segments.first(); s != nullptr; s = home.segments.after(s->id)) {
    if (!imports(home, *s, client)) continue;
    const SegmentLock locked(home, s, SegmentLock::kBoth);
    if (locked) visit(*locked);
  }
}
// What a fenced client wrote one-sided and has not announced is at home already: everyone drops
// everything (rule 18). `instance`: of one import, 0: of all that the client has.
void forget_content(HomeCore& home, Segment& s, const ContextId& client, uint32_t instance)
    CMI_REQUIRES(home.mu);
// The segments for which the end of this client is reported; *who becomes its name.
std::vector<int32_t> imported_by(HomeCore& home, const ContextId& client, access::NaddrInfo* who)
    CMI_REQUIRES(home.mu);
// Importers that have not acknowledged what the round sent: they are fenced, and others notified
// of what they may have stored.
void cut_off_silent(HomeCore& home, const RoundPtr& p, uint64_t uid) CMI_EXCLUDES(home.mu);
// What is cut off writes nothing any more, and reads what it has cached until it has answered, or
// its lease is over, which is before it is declared dead. True: it reads nothing any more.
bool await_end(HomeCore& home, const RoundPtr& p, Deadline deadline) CMI_EXCLUDES(home.mu);

}  // namespace cmi::memory
