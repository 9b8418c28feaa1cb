// Dirty pages that other nodes store to as well: the timer leaves them alone while they are being
// stored to, since each write-back in mid-work makes every other writer send and fetch the page
// again.
//
// One such page goes when it holds the same at two ticks. Where it happens to several pages of an
// import (all()), many nodes work on many pages, and a page that is not stored to in a tick will be
// stored to all the same. No dirty page goes then until the process has come to rest, or the page
// has waited for long; and of those one at a time. The process rests when two looks at all of the
// pages, a while apart, find no change and none has become dirty between them.
// Before that is known the timer takes a few pages in a tick, and twice as many in the next one.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <unordered_map>

#include "core/base/clock.hpp"

namespace cmi::memory {

class ContendedPages {
 public:
  static constexpr Nanos kBound = kSecond;  // from when the timer met the page
  static constexpr size_t kMost = 16384;    // pages; others are due at once
  static constexpr uint32_t kSeveral = 8;   // pages that were taken lately, from which on all() is
  // At rest after this time and some more for each dirty page, or after the most.
  static constexpr Nanos kRest = 20 * kMilli, kRestOfPage = kMilli + kMilli / 4;
  static constexpr Nanos kMostRest = 100 * kMilli;
  static constexpr Nanos kOneEach = 50 * kMilli;  // of pages that have waited for long, in all()
  static constexpr size_t kFew = 32;              // pages of a tick, at first

  // A notification has taken a page that the timer has published too early, or would have. Any
  // thread.
  void taken_away() { taken_.fetch_add(1, std::memory_order_relaxed); }

  // The rest: service thread alone.

  // A tick at time `t`. `dirty`: pages. `stored`: how often a page has become dirty so far.
  void tick(size_t dirty, uint64_t stored, Nanos t) {
    for (; level_ > 0 && t - halved_at_ >= kHalfLife; halved_at_ += kHalfLife) level_ /= 2;
    if (level_ == 0) halved_at_ = t;
    const uint32_t taken = taken_.exchange(0, std::memory_order_relaxed);
    level_ = std::min(kMostLevel, level_ + taken);
    if (taken > 0) {
      most_ = kFew;
    } else if (took_most_) {
      most_ *= 2;
    }
    took_most_ = false;
    rests_ = (rests_ || looks_) && !changed_ && stored == stored_;
    if (changed_ || stored != stored_) stored_at_ = t;
    changed_ = false;
    stored_ = stored;
    const Nanos rest = std::min(kMostRest, kRest + kRestOfPage * static_cast<Nanos>(dirty));
    looks_ = !rests_ && t - stored_at_ >= rest;
    one_is_due_ = t - one_at_ >= kOneEach;
  }
  // How many pages the timer may look at in this tick, where they are not known to be contended.
  size_t most() const { return all() ? SIZE_MAX : most_; }
  // How many it has looked at.
  void took(size_t pages) { took_most_ = !all() && pages >= most_; }
  // Whether all dirty pages of the import count as contended.
  bool all() const { return level_ >= kSeveral; }

  // `generation`: of the page, another one if it has been written back or fetched since.
  // `content`: gives a hash of what it holds now. True: the page was quiet or has waited for long
  // enough; it is forgotten.
  template <class Content>
  bool due(uint32_t page, uint32_t generation, Content content, Nanos t) {
    auto it = pages_.find(page);
    if (it == pages_.end() && pages_.size() >= kMost) return true;
    if (it == pages_.end() || it->second.generation != generation) {
      pages_.insert_or_assign(page, Seen{generation, content(), t});
      return false;
    }
    if (!waited(it->second.since, t) && !quiet(&it->second.content, content)) return false;
    pages_.erase(it);
    return true;
  }
  void forget_all() { pages_.clear(); }

 private:
  struct Seen {
    uint32_t generation;
    uint64_t content;
    Nanos since;
  };
  bool waited(Nanos since, Nanos t) {
    if (t - since < kBound || (all() && !one_is_due_)) return false;
    one_is_due_ = false;
    one_at_ = t;
    return true;
  }
  template <class Content>
  bool quiet(uint64_t* seen, Content content) {
    if (all() && !rests_ && !looks_) return false;
    const uint64_t before = *seen;
    *seen = content();
    changed_ = changed_ || *seen != before;
    return *seen == before && (!all() || (rests_ && !changed_));
  }

  static constexpr uint32_t kMostLevel = 1024;
  static constexpr Nanos kHalfLife = 5 * kSecond;
  std::atomic<uint32_t> taken_{0};
  uint32_t level_ = 0;  // pages taken lately
  Nanos halved_at_ = 0, stored_at_ = 0, one_at_ = 0;
  uint64_t stored_ = 0;
  size_t most_ = kFew;
  // rests_: at the last look nothing had changed since the one before, nor has it since. looks_: in
  // this tick. changed_: a page, as this tick has found.
  bool took_most_ = false, rests_ = false, looks_ = false, changed_ = false, one_is_due_ = true;
  std::unordered_map<uint32_t, Seen> pages_;
};

}  // namespace cmi::memory
