// Both halves of a subscription to a page, and what goes to a subscriber: whole words, as a diff.
#include "core/memory/page/update_protocol.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/mutation.hpp"
#include "core/memory/page/compare.hpp"
#include "core/memory/page/diff.hpp"

namespace cmi::memory {

void SubscribedPages::dropped(uint32_t page) {
  Guard g(mu_);
  Slot& s = slot(page);
  // Another page's: it goes when it is dropped less often than this one.
  if (s.page != page && s.page != kNoPage && --s.again > 0) return;
  if (s.page != page) s = {page, 0, 0, 0, 0};
  s.epoch = 0;
  any_.store(true, std::memory_order_relaxed);
}

uint32_t SubscribedPages::fetched(uint32_t page, uint32_t generation) {
  Guard g(mu_);
  Slot& s = slot(page);
  if (s.page != page) return 0;
  s.again = s.again < kSure ? s.again + 1 : kSure;
  if (s.again < kSubscribeFrom) return 0;
  if (++epochs_ == 0) epochs_ = 1;
  s.epoch = epochs_;
  s.next = 0;
  s.generation = generation;
  return s.epoch;
}

UpdateMatch SubscribedPages::match(uint32_t page, uint32_t epoch, uint32_t number,
                                   uint32_t generation) {
  Guard g(mu_);
  const Slot& s = slot(page);
  if (s.page != page || s.epoch == 0 || s.epoch != epoch) return UpdateMatch::kUnknown;
  if (s.generation != generation && !mutated("mutate_update_any_generation")) {
    return UpdateMatch::kChanged;
  }
  if (mutated("mutate_update_any_number")) return UpdateMatch::kNext;
  if (number < s.next) return UpdateMatch::kRepeated;
  return number == s.next ? UpdateMatch::kNext : UpdateMatch::kUnknown;
}

void SubscribedPages::applied(uint32_t page, uint32_t generation) {
  Guard g(mu_);
  Slot& s = slot(page);
  ++s.next;
  s.generation = generation;
}

void SubscribedPages::stored_to(uint32_t page) {
  Guard g(mu_);
  Slot& s = slot(page);
  if (mutated("mutate_update_any_generation")) return;
  // Where there was none yet, a node that swaps and then waits for others is to have one soon.
  if (s.page == page && s.epoch != 0) s = {page, kStoredHere, 0, 0, 0};
}

void SharerSubscriptions::subscribe(uint32_t page, uint32_t epoch) {
  if (slots_.empty()) slots_.resize(kSubscriptionSlots);
  Slot& s = slots_[page % kSubscriptionSlots];
  if (s.page != page || s.epoch != epoch) s = {page, epoch, 0};
}

SharerSubscriptions::Slot* SharerSubscriptions::find(uint32_t page) {
  if (slots_.empty()) return nullptr;
  Slot& s = slots_[page % kSubscriptionSlots];
  return s.page == page && s.number < kSubscribeFor ? &s : nullptr;
}

StoredWords* words_in(uint32_t page, std::vector<StoredPage>* stored) {
  const auto it = std::find_if(stored->begin(), stored->end(),
                               [page](const StoredPage& p) { return p.page == page; });
  if (it != stored->end()) return &it->words;
  stored->push_back({page, {}});
  return &stored->back().words;
}

bool words_of(Reader diff, StoredWords* words) {
  const auto runs = diff.get<uint16_t>();
  if (runs == kBitmap) {
    const Bytes bits = diff.bytes(sizeof(ChangedBits));
    for (size_t i = 0; i < bits.size(); ++i) {
      if (bits[i] != std::byte{0}) words->set(i);
    }
    return diff.ok();
  }
  for (unsigned i = 0; i < runs; ++i) {
    const size_t at = diff.get<uint16_t>();
    const size_t length = diff.blob().size();
    if (!diff.ok() || length == 0 || at + length > kPageSize) return false;
    const size_t first = at / 8, count = (at + length - 1) / 8 - first + 1;
    *words |= ~StoredWords{} >> (words->size() - count) << first;
  }
  return diff.ok();
}

void encode_words(const std::byte* page, const StoredWords& words, Writer& out) {
  std::byte* const head = out.reserve(sizeof(uint16_t));
  uint16_t runs = 0;
  // libstdc++'s own: a publisher waits for this, and most words are not set.
  for (size_t w = words._Find_first(); w < words.size(); w = words._Find_next(w)) {
    size_t end = w + 1;
    while (end < words.size() && words[end]) ++end;
    out.put(static_cast<uint16_t>(w * 8));
    out.put(static_cast<uint16_t>((end - w) * 8));
    for (; w < end; ++w) {
      out.put(__atomic_load_n(reinterpret_cast<const uint64_t*>(page) + w, __ATOMIC_RELAXED));
    }
    ++runs;
  }
  if (head != nullptr) std::memcpy(head, &runs, sizeof runs);
}

}  // namespace cmi::memory
