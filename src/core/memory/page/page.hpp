// The state of one page of an imported segment, its lock, and the table of legal moves.
// Pure: no system calls, no network.
//
// The lock is short: every change of the page's mapping, its state, its twin and its diff happens
// under it, never a network wait (protocol rule 1). A thread that locks several pages locks them in
// ascending order. All signals are blocked while one is held.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/base/lock.hpp"
#include "core/memory/page/dirty_intent.hpp"
#include "core/memory/page/heat.hpp"
#include "core/memory/page/swap_habit.hpp"

namespace cmi::memory {

enum class PageState : uint8_t {
  kAbsent,         // in no view
  kFetching,       // one thread reads it from the home; others wait
  kStale,          // an invalidation came while it was being fetched: fetch again
  kClean,          // as the home had it; write-protected wherever it is mapped
  kDirty,          // writable, twin kept; hot pages stay so over their write-backs
  kWriting,        // write-protected again, its changes are on their way to the home
  kZappedDirty,    // invalidated while dirty and an earlier write-back is out: faults wait
  kZappedWriting,  // out of every view, its changes are on their way: faults wait
};
inline constexpr int kPageStates = 8;

inline bool may_be_mapped(PageState s) {
  return s == PageState::kClean || s == PageState::kDirty || s == PageState::kWriting;
}

// Which moves from one state to another there are; any other is a bug (asserted).
bool legal_move(PageState from, PageState to);
const char* page_state_name(PageState s);

inline constexpr uint32_t kNoPage = UINT32_MAX;

// A page as it was at some time.
struct PageSeen {
  uint32_t generation;
  bool dirty;
};

struct Page {
  std::atomic<uint8_t> locked{0};
  PageState state = PageState::kAbsent;
  bool in_flight : 1 = false;  // a write-back of it is not acknowledged yet; at most one (rule 5)
  bool pinned : 1 = false;     // that write-back reads the page itself: stores to it wait
  bool listed : 1 = false;     // stands in the dirty list
  bool backed : 1 = false;     // its cache file has memory for it
  bool marker = false;         // clean, not mapped: an access has more pages fetched ahead
  IntentState intent;          // at the home, in client-inconsistent segments
  Heat heat;                   // kDirty and hot: stands in the list of hot pages, too (rule 27)
  // The home may have noted that it is not cached here, so it enters by a message (rule 28). Set
  // while it is in no view and not being fetched, under the lock; cleared by the thread for which
  // the page is kFetching.
  bool released = false;
  SwapHabit swaps;    // of words on it
  uint32_t twin = 0;  // index in the twin pool; != 0 in kDirty and kZappedDirty
  uint32_t generation =
      0;  // raised whenever the page may be another one than before (rules 12 and 25)

  void lock() {
    // Acquire pairs with the release in unlock: what the last sharer did to the page is seen.
    Backoff backoff;
    while (locked.exchange(1, std::memory_order_acquire) != 0) backoff.pause();
  }
  void unlock() { locked.store(0, std::memory_order_release); }
  void move(PageState to);
  PageSeen seen() const { return {generation, state == PageState::kDirty}; }
  // Whether it may have become dirty since, or was dirty then, and is clean now: the thread that
  // waited to store to it may have stored and gone on.
  bool may_have_been_dirty_since(const PageSeen& then) const {
    return state != PageState::kDirty && (then.dirty || generation != then.generation);
  }
};
static_assert(sizeof(Page) == 16);

}  // namespace cmi::memory
