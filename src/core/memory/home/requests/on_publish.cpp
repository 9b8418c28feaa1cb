// Diffs of pages that an importer has stored to: they are applied, and the other importers drop
// the pages before the publisher has its answer.
#include "core/base/careful_copy.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/home_mutations.hpp"
#include "core/memory/home/requests/applied.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/page/diff.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

namespace {
// Takes a diff from `in` and applies it. kBroken: to nothing, for the page is lost.
WireStatus store_diff(Reader& in, std::byte* page) {
  const Reader start = in;
  bool good = false;
  const auto apply = [&] { good = apply_diff(in, page); };
  if (unless_broken(page, kPageSize, apply)) {
    return good ? WireStatus::kOk : WireStatus::kMalformed;
  }
  in = start;
  std::byte nowhere[kPageSize];
  return apply_diff(in, nowhere) ? WireStatus::kBroken : WireStatus::kMalformed;
}

// Applies the next page of the message. kOk, also where the memory is broken (*broken) or gone.
WireStatus apply_next(Segment& s, const Sharer& h, PublishedPages* pages, Applied* applied,
                      bool* broken) {
  DirtyIntent intent;
  if (!pages->next(&intent) || intent.page >= s.pages()) return WireStatus::kRange;
  const uint32_t page = intent.page;
  if (!h.covers(page, 1)) return WireStatus::kRights;
  // What was stored behind the break, before its importer heard of it, is gone with the memory.
  const bool gone = page >= low_of(s, h) / kPageSize;
  std::byte past_break[kPageSize];
  std::byte* const at = gone ? past_break : s.service.data() + size_t{page} * kPageSize;
  if (!gone && subscribed(s, page)) {
    (void)words_of(pages->diff(), words_in(page, &applied->of_subscribed));
  }
  const WireStatus stored = store_diff(pages->diff(), at);
  if (stored == WireStatus::kMalformed) return stored;
  if (gone) return WireStatus::kOk;
  *broken = *broken || stored == WireStatus::kBroken;
  if (intent.epoch != 0) applied->intents.push_back(intent);
  applied->add({page, 1});
  return WireStatus::kOk;
}

void apply_all(Segment& s, const Sharer& h, const PublishRequest& m, Applied* applied) {
  WireStatus& status = applied->status;
  bool broken = false;
  PublishedPages pages(m);
  for (uint32_t i = 0; i < m.pages && status == WireStatus::kOk; ++i) {
    fault_point("publish_before_page");
    status = apply_next(s, h, &pages, applied, &broken);
  }
  if (status == WireStatus::kOk && !pages.end(&applied->asked.secret)) {
    status = WireStatus::kMalformed;
  }
  if (status == WireStatus::kOk && broken) status = WireStatus::kBroken;
}
}  // namespace

void on_publish(HomeCore& home, const ClientInfo& client, uint64_t number,
                const PublishRequest& m) {
  if (mutated("mutate_publish_before_data")) {
    return HomeMutations::publish_before_data(home, client, number, m);
  }
  Applied applied;
  applied.asked = {number, 0};
  {
    Guard g(home.mu);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    applied.status = check(home, client.id, m.uid, m.instance, fabric::kWrite, &s, &h);
    if (applied.status == WireStatus::kOk) {
      apply_all(*s, *h, m, &applied);
      if (publish_applied(home, *s, *h, client, number, applied)) return;
    }
  }
  reply(home.parts.server, client.id, number, applied.status);
}

}  // namespace cmi::memory
