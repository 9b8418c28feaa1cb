// What an importer has stored, and the swap that it makes after it (protocol rule 12): the swap is
// made when all other importers have dropped the pages.
#include <utility>

#include "core/base/mutation.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/applied.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/requests/swap_word.hpp"
#include "core/memory/home/segment_lock.hpp"

namespace cmi::memory {

namespace {
struct SwapToMake {
  HomeCore& home;
  ContextId client;
  uint64_t number;
  uint32_t session;  // in which it was asked for
  CasRequest swap;

  void answer(WireStatus made, uint64_t found) const {
    const PublishSwapReply m{static_cast<uint8_t>(made), found};
    reply(home.parts.server, client, number, WireStatus::kOk, Encoded(m));
  }

  // The stores before it are published. An importer that has another session by now may have given
  // the request up, and counts on it that what was not made before never will be (rule 20): it asks
  // for the swap anew, if it still waits.
  // The session is looked at and the swap made under HomeCore::mu: a new session, which takes that
  // lock before it is welcomed, is later than both.
  void make() const {
    uint64_t found = 0;
    auto made = WireStatus::kNotPresented;
    {
      const SegmentLock s(home, Uid{swap.uid}, SegmentLock::kMemory);
      Guard g(home.mu);
      bool publish = false;
      if (home.parts.server.clients().session_of(client) == session) {
        made = make_swap(home, s.get(), client, swap, &found, &publish);
      }
      if (const RoundPtr published = publish ? publish_swap(home, *s, client, swap) : nullptr) {
        published->finished = [to_make = *this, found] { to_make.answer(WireStatus::kOk, found); };
        return;
      }
    }
    answer(made, found);
  }
};
}  // namespace

void on_publish_swap(HomeCore& home, const ClientInfo& client, uint64_t number,
                     const PublishSwapRequest& m) {
  const SwapToMake then{home,
                        client.id,
                        number,
                        home.parts.server.clients().session_of(client.id),
                        {m.uid, m.instance, m.offset, m.expected, m.desired}};
  Applied applied;
  applied.asked = {number, 0};
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    Sharer* h = nullptr;
    applied.status = check(home, s.get(), client.id, m.instance, fabric::kWrite, &h);
    if (applied.status == WireStatus::kOk) {
      apply_pages(home, *s, *h, m.pages, PublishedPages(m.body), nullptr, &applied);
      Guard g(home.mu);
      RoundPtr stores = publish_applied(home, *s, *h, client, number, applied);
      if (stores != nullptr && applied.status == WireStatus::kOk) {
        stores->finished = [then] { then.make(); };
        if (mutated("mutate_swap_before_complete")) std::exchange(stores, nullptr)->finished = {};
      }
      if (stores != nullptr) return;
    }
  }
  if (applied.status == WireStatus::kOk) return then.make();
  reply(home.parts.server, client.id, number, applied.status);
}

}  // namespace cmi::memory
