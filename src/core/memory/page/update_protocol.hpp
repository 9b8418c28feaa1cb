// Pages that are kept up to date where they are cached, instead of dropped (protocol rule 25), both
// halves. An importer subscribes to a page that it loads again whenever it is dropped: the home
// sends along with the notification what was stored. The importer asks for that under an epoch of
// its choosing, once it has fetched the page; the home numbers what it sends under it. So the
// importer can tell what it may take in: the next of the epoch, to a page that is still the one
// that was fetched and has taken in the others. Everything else drops the page, as a notification
// always may.
//
// Both sides keep as many pages as there are slots, each in the slot of its number: where two
// meet, one is dropped and fetched as ever. Pure: no system calls, no network.
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <vector>

#include "core/base/codec.hpp"
#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "core/memory/page/update_decision.hpp"

namespace cmi::memory {

inline constexpr uint32_t kSubscriptionSlots = 64;  // a bit for each in Segment::subscribed
inline constexpr int kSubscribeFrom =
    2;  // times that it was fetched again after it had been dropped
// Updates of one epoch. The page is dropped then, so that a subscriber that no longer loads it does
// not get updates for ever; one that does subscribes anew.
inline constexpr uint32_t kSubscribeFor = 64;

// Of one import, in the importer; each call under the page's lock. Any thread, the fault handler
// too.
class SubscribedPages {
 public:
  // A notification has dropped the page, which was clean.
  void dropped(uint32_t page);
  // It has been fetched and is clean, and of this generation. Not 0: the epoch to ask for it under.
  uint32_t fetched(uint32_t page, uint32_t generation);
  // Whether fetched() may have anything to say; without a lock.
  bool any() const { return any_.load(std::memory_order_relaxed); }

  // What an update is to the subscription of the page, which is of this generation.
  UpdateMatch match(uint32_t page, uint32_t epoch, uint32_t number, uint32_t generation);
  // The next update was applied; the page is of this generation now.
  void applied(uint32_t page, uint32_t generation);
  // What this node does there itself, such as to store to it, is in the way.
  void stored_to(uint32_t page);

 private:
  // Until it has been dropped and fetched that often more.
  static constexpr int kStoredHere = -8, kSure = 4;
  struct Slot {
    uint32_t page = kNoPage;
    int again = 0;       // how often it was fetched again
    uint32_t epoch = 0;  // 0: there is no subscription
    uint32_t next = 0;   // number of the update to come
    uint32_t generation = 0;
  };
  Slot& slot(uint32_t page) CMI_REQUIRES(mu_) { return slots_[page % kSubscriptionSlots]; }

  std::atomic<bool> any_{false};
  Mutex mu_;
  uint32_t epochs_ CMI_GUARDED_BY(mu_) = 0;
  std::array<Slot, kSubscriptionSlots> slots_ CMI_GUARDED_BY(mu_);
};

// Of one sharer, at the home. The owner's lock guards it.
class SharerSubscriptions {
 public:
  struct Slot {
    uint32_t page = kNoPage, epoch = 0, number = 0;
  };
  void subscribe(uint32_t page, uint32_t epoch);
  // Null: the sharer is not subscribed to it, or has been for long enough.
  Slot* find(uint32_t page);
  bool has(uint32_t page) { return find(page) != nullptr; }
  // Whether it may be subscribed to the page: true for longer than has(). It reads what subscribe()
  // writes and nothing else, so numbering may go on meanwhile.
  bool may_have(uint32_t page) const {
    return !slots_.empty() && slots_[page % kSubscriptionSlots].page == page;
  }

 private:
  std::vector<Slot> slots_;  // none while there is nothing
};

// The 8 byte words of a page that were stored to. What goes to a sharer are whole words as they
// are at home by then: so none is torn, and beside what was stored there is nothing older than
// what the sharer has.
using StoredWords = std::bitset<kPageSize / sizeof(uint64_t)>;
struct StoredPage {
  uint32_t page = 0;
  StoredWords words;
};
// Of the page's only entry, which is made where there is none.
StoredWords* words_in(uint32_t page, std::vector<StoredPage>* stored);
// Of a diff that apply_diff() takes, added to *words. False: malformed.
bool words_of(Reader diff, StoredWords* words);
// As a diff; the most that it takes. The page may be stored to meanwhile; no word is torn.
void encode_words(const std::byte* page, const StoredWords& words, Writer& out);
inline constexpr size_t kMaxWordsSize = 2 + 4 + kPageSize;  // all of them, one run

}  // namespace cmi::memory
