// Diffs of published pages, into the memory of a segment.
#include "core/base/fault_point.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/applied.hpp"
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
WireStatus apply_next(Segment& s, const Sharer& h, uint64_t low, PublishedPages* pages,
                      Applied* applied, bool* broken) {
  DirtyIntent intent;
  if (!pages->next(&intent) || intent.page >= s.pages()) return WireStatus::kRange;
  const uint32_t page = intent.page;
  if (!h.covers(page, 1)) return WireStatus::kRights;
  // What was stored behind the break, before its importer heard of it, is gone with the memory.
  const bool gone = page >= low / kPageSize;
  std::byte past_break[kPageSize];
  std::byte* const at = gone ? past_break : s.service.data() + size_t{page} * kPageSize;
  if (!gone && may_be_subscribed(s, page)) {
    (void)words_of(pages->diff(), words_in(page, &applied->of_subscribed));
  }
  StoredWords words;
  const bool known = words_of(pages->diff(), &words);
  const WireStatus stored = store_diff(pages->diff(), at);
  if (stored == WireStatus::kMalformed) return stored;
  if (gone) return WireStatus::kOk;
  if (known) s.writers.count_words(page, h.client, words);
  *broken = *broken || stored == WireStatus::kBroken;
  if (intent.epoch != 0) applied->intents.push_back(intent);
  applied->add({page, 1});
  return WireStatus::kOk;
}

}  // namespace

void apply_pages(HomeCore& home, Segment& s, const Sharer& h, uint32_t count, PublishedPages pages,
                 uint64_t* secret, Applied* applied) {
  WireStatus& status = applied->status;
  const uint64_t low = low_for(home, s, h);
  bool broken = false;
  for (uint32_t i = 0; i < count && status == WireStatus::kOk; ++i) {
    fault_point("publish_before_page");
    status = apply_next(s, h, low, &pages, applied, &broken);
  }
  if (status == WireStatus::kOk && !(secret != nullptr ? pages.end(secret) : pages.end())) {
    status = WireStatus::kMalformed;
  }
  if (status == WireStatus::kOk && broken) status = WireStatus::kBroken;
}

}  // namespace cmi::memory
