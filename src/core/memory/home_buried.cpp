// The memory of segments that are gone. Over providers that read and write in software an operation
// in mid-payload outlives its registration, and who has answered that it uses the segment no more
// may have lied: what such a one would reach is kept from any other use until its connection is
// closed.
#include <sys/mman.h>

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/home.hpp"

namespace cmi::memory {

namespace {
constexpr size_t kMostBuried = 256;  // then connections are closed for it
constexpr Nanos kLookAgain = kSecond;
}  // namespace

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
  look_at_buried(now());
  Buried b;
  for (const ContextId& client : s.keyed) {
    const uint32_t session = parts_.server.session_of(client);
    if (session != 0) b.sessions.emplace_back(client, session);
  }
  if (b.sessions.empty() || fault_point_fails("mutate_memory_not_buried")) {
    s.service.reset();
    return;
  }
  void* const at = mmap(s.service.data(), s.service.size(), PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (at == MAP_FAILED) alert(kFacSeg, "segment {}: its memory cannot be closed yet", s.id);
  b.place = std::move(s.service);
  buried_.push_back(std::move(b));
}

void Home::look_at_buried(Nanos t) {
  if (buried_.empty() || t - buried_looked_ < kLookAgain) return;
  buried_looked_ = t;
  std::erase_if(buried_, [&](Buried& b) {
    std::erase_if(b.sessions, [&](const auto& session) {
      return parts_.server.session_of(session.first) != session.second;
    });
    return b.sessions.empty();
  });
}

// An honest importer connects anew.
void Home::close_for_buried() {
  std::vector<ContextId> clients;
  {
    Guard g(mu_);
    if (buried_.size() <= kMostBuried) return;
    for (auto& [client, session] : buried_.front().sessions) clients.push_back(client);
  }
  for (const ContextId& client : clients) parts_.server.fence(client, false);
  Guard g(mu_);
  buried_looked_ = 0;
}

}  // namespace cmi::memory
