// What an importer has stored, and the swap that it makes after it (protocol rule 12): the swap is
// made when all other importers have dropped the pages. Its answer may bring the word's page.
#include <cstring>
#include <utility>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/applied.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/requests/may_intend.hpp"
#include "core/memory/home/requests/swap_word.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

namespace {
// What the answer to a swap is to bring.
struct Wanted {
  bool answer = false;  // it is asked for: the answer says what became of it
  bool page = false;
  uint8_t epoch = 0;  // of the page's dirty intent; 0: it is not
};

struct SwapToMake {
  HomeCore& home;
  ContextId client;
  uint64_t number;
  uint32_t session;  // in which it was asked for
  CasRequest swap;
  Wanted wanted;

  uint32_t page() const { return static_cast<uint32_t>(swap.offset / kPageSize); }

  void answer(WireStatus made, uint64_t found) const {
    if (wanted.answer) return answer_with_page(made, found);
    const PublishSwapReply m{static_cast<uint8_t>(made), found};
    reply(home.parts.server, client, number, WireStatus::kOk, Encoded(m));
  }

  // When all others have dropped the page, so that what the importer gets is as new as can be.
  void answer_with_page(WireStatus made, uint64_t found) const {
    std::byte content[kPageSize];
    SwapFetchReply m{static_cast<uint8_t>(made), found, 0, {}};
    if (made == WireStatus::kOk) {
      const SegmentLock s(home, Uid{swap.uid}, SegmentLock::kMemory);
      bool intent = false;
      m.body = fetch(s.get(), content, &intent);
      m.intent = static_cast<uint8_t>(intent);
    }
    fault_point("swap_fetch_before_reply");
    std::byte buf[1 + kWireSize<SwapFetchReply> + kPageSize];
    Writer out(buf);
    out.put(static_cast<uint8_t>(WireStatus::kOk));
    encode(m, out);
    home.parts.server.reply(client, number, out.done());
  }

  // As on_fetch_with_intent() does, but that what is refused is left out: the importer asks for it
  // when it needs it, and hears why. An intent that the home still has is that of a store whose
  // publication is under way, or of a later request: it stays.
  Bytes fetch(Segment* s, std::byte* content, bool* intent) const CMI_EXCLUDES(home.mu) {
    Sharer* h = nullptr;
    if (check(home, s, client, swap.instance, fabric::kRead, &h) != WireStatus::kOk) return {};
    {
      Guard g(home.mu);
      if (!h->regions.holds(region_of(page()))) return {};
      if (may_enter(*s, *h, {page(), 1}) != WireStatus::kOk) return {};
      if (wanted.page && !mutated("mutate_swapped_page_not_entered")) {
        h->regions.enter({page(), 1}, home.rounds.table().next_number());
      }
      if (wanted.epoch != 0 && (h->granted.rights & fabric::kWrite) != 0 &&
          may_intend(*s, *h, page()) == WireStatus::kOk && h->intents.epoch(page()) == 0) {
        (void)h->intents.set(page(), wanted.epoch);
        *intent = true;
      }
    }
    if (!wanted.page) return {};
    const std::byte* const at = s->service.data() + size_t{page()} * kPageSize;
    const auto copy = [&] { std::memcpy(content, at, kPageSize); };
    return unless_broken(at, kPageSize, copy) ? Bytes(content, kPageSize) : Bytes();
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

// The stores, and then the swap.
void publish_and_swap(HomeCore& home, const ClientInfo& client, uint64_t number,
                      const SwapToMake& then, uint32_t pages, Bytes body) {
  Applied applied;
  applied.asked = {number, 0};
  {
    const SegmentLock s(home, Uid{then.swap.uid}, SegmentLock::kMemory);
    Sharer* h = nullptr;
    applied.status = check(home, s.get(), client.id, then.swap.instance, fabric::kWrite, &h);
    if (applied.status == WireStatus::kOk) {
      apply_pages(home, *s, *h, pages, PublishedPages(body), nullptr, &applied);
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
}  // namespace

void on_publish_swap(HomeCore& home, const ClientInfo& client, uint64_t number,
                     const PublishSwapRequest& m) {
  const SwapToMake then{home,
                        client.id,
                        number,
                        home.parts.server.clients().session_of(client.id),
                        {m.uid, m.instance, m.offset, m.expected, m.desired},
                        {}};
  publish_and_swap(home, client, number, then, m.pages, m.body);
}

void on_swap_fetch(HomeCore& home, const ClientInfo& client, uint64_t number,
                   const SwapFetchRequest& m) {
  const SwapToMake then{home,
                        client.id,
                        number,
                        home.parts.server.clients().session_of(client.id),
                        {m.uid, m.instance, m.offset, m.expected, m.desired},
                        {true, m.page != 0, m.epoch}};
  if (m.pages == 0 && m.body.empty()) return then.make();
  publish_and_swap(home, client, number, then, m.pages, m.body);
}

}  // namespace cmi::memory
