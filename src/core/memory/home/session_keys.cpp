#include "core/memory/home/session_keys.hpp"

#include <algorithm>
#include <utility>

#include "core/base/log.hpp"
#include "core/base/mutation.hpp"

namespace cmi::memory {

Result<std::unique_ptr<fabric::Region>> register_for(HomeCore& home, Segment& s,
                                                     const access::TokenInfo& token, uint64_t key,
                                                     const ContextId* client) {
  const uint64_t first = token.part.offset;
  const uint64_t whole = token.part.size != 0 ? first + token.part.size : s.size;
  const uint64_t end = std::min(whole, s.brk.bytes);
  if (end <= first) return std::unique_ptr<fabric::Region>();
  std::byte* const from = s.service.data() + first;
  return client != nullptr
             ? home.parts.server.register_for(*client, from, end - first, token.rights, key)
             : home.parts.server.register_at(kTokensListener, from, end - first, token.rights, key);
}

// Only a client that has a session by now can have an operation under way.
void note_key(HomeCore& home, Segment& s, const ContextId& client) {
  if (std::find(s.keyed.begin(), s.keyed.end(), client) != s.keyed.end()) return;
  if (s.keyed.size() >= 2 * fabric::kMaxClients) {
    std::erase_if(s.keyed, [&](const ContextId& c) {
      return home.parts.server.clients().session_of(c) == 0;
    });
  }
  s.keyed.push_back(client);
}

void quarantine_memory(HomeCore& home, Segment& s) {
  Mapping memory;
  {
    Guard g(home.mu);
    memory = std::move(s.service);
  }
  if (!memory || !s.tokens.ever() || mutated("mutate_memory_not_quarantined")) return;
  Quarantine::Sessions sessions;
  for (const ContextId& client : s.keyed) {
    const uint32_t session = home.parts.server.clients().session_of(client);
    if (session != 0) sessions.emplace_back(client, session);
  }
  if (!home.quarantine.add(std::move(memory), std::move(sessions))) {
    alert(kFacSeg, "segment {}: its memory cannot be closed yet", s.id);
  }
}

void trim_quarantine(HomeCore& home) {
  while (const auto oldest = home.quarantine.take_excess()) {
    for (auto& [client, session] : oldest->sessions) {
      if (home.parts.server.clients().session_of(client) == session)
        home.parts.server.fence(client, false);
    }
  }
}

}  // namespace cmi::memory
