// The memory of segments that are gone. Over providers that read and write in software an operation
// in mid-payload outlives its registration, and who has answered that it uses the segment no more
// may have lied. So nothing else gets the addresses that such an operation would reach for a long
// time, and the connections that it may have come by are closed before.
#include <sys/mman.h>

#include <algorithm>

#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/home.hpp"

namespace cmi::memory {

namespace {
constexpr size_t kMostQuarantined = 256;
constexpr uint64_t kMostAddresses = uint64_t{1} << 43;  // a sixteenth of what a process has
}  // namespace

// Only who has a session by now can have an operation under way.
void Home::note_key(Segment& s, const ContextId& client) {
  if (std::find(s.keyed.begin(), s.keyed.end(), client) != s.keyed.end()) return;
  if (s.keyed.size() >= 2 * fabric::kMaxClients) {
    std::erase_if(s.keyed, [&](const ContextId& c) { return parts_.server.session_of(c) == 0; });
  }
  s.keyed.push_back(client);
}

// Its memory goes to the system, its addresses to nobody yet.
void Home::bury(Segment& s) {
  if (!s.service) return;
  if (!s.had_token || mutated("mutate_memory_not_buried")) {
    s.service.reset();
    return;
  }
  void* const at = mmap(s.service.data(), s.service.size(), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (at == MAP_FAILED) alert(kFacSeg, "segment {}: its memory cannot be closed yet", s.id);
  Quarantined b;
  for (const ContextId& client : s.keyed) {
    const uint32_t session = parts_.server.session_of(client);
    if (session != 0) b.sessions.emplace_back(client, session);
  }
  quarantined_bytes_ += s.service.size();
  b.place = std::move(s.service);
  quarantined_.push_back(std::move(b));
}

// The oldest, where there are too many. An honest importer that is still there connects anew.
void Home::unbury() {
  for (;;) {
    Quarantined oldest;
    {
      Guard g(mu_);
      if (quarantined_.size() <= kMostQuarantined && quarantined_bytes_ <= kMostAddresses) return;
      oldest = std::move(quarantined_.front());
      quarantined_.erase(quarantined_.begin());
      quarantined_bytes_ -= oldest.place.size();
    }
    for (auto& [client, session] : oldest.sessions) {
      if (parts_.server.session_of(client) == session) parts_.server.fence(client, false);
    }
  }
}

}  // namespace cmi::memory
