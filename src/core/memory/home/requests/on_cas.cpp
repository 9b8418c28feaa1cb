// A swap of one word, for an importer whose provider has no atomics.
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/requests/swap_word.hpp"
#include "core/memory/home/segment_lock.hpp"

namespace cmi::memory {

void on_cas(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
            const CasRequest& m) {
  WireStatus status = WireStatus::kMalformed;
  uint64_t found = 0;
  const auto answer = [&home, id = client.id, number](WireStatus st, uint64_t word) {
    reply(home.parts.server, id, number, st, Encoded(CasReply{word}));
  };
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    bool publish = false;
    status = make_swap(home, s.get(), client.id, m, &found, &publish);
    if (publish) {
      Guard g(home.mu);
      if (const RoundPtr published = publish_swap(home, *s, client.id, m)) {
        published->finished = [answer, found] { answer(WireStatus::kOk, found); };
        return;
      }
    }
  }
  answer(status, found);
}

}  // namespace cmi::memory
