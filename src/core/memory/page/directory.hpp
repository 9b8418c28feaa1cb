// The directory by region (protocol rule 10), both halves. A region is 2 MiB of a segment. Before
// an importer fetches the first page of one, its home notes that it holds the region, under an
// epoch of the importer's choosing; from then on it is notified of invalidation rounds there. A
// notification that finds nothing of the region cached is the last one: the importer releases the
// region and says so, with the epoch, in its acknowledgement. An acknowledgement that arrives after
// the importer has come back names an older epoch and changes nothing. Pure: no system calls, no
// network.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/memory/page/shared_regions.hpp"

namespace cmi::memory {

// Of one import, in the importer. Each region is one atomic word, so that a fetch that enters it
// and a notification that would release it have an order. Any thread, the fault handler too.
class ImportRegions {
 public:
  ImportRegions() = default;
  explicit ImportRegions(uint32_t regions) : words_(new std::atomic<uint64_t>[regions] {}) {}

  // A page of the region is cached or about to be fetched (or a request for it is under way).
  void enter(uint32_t region) { word(region).fetch_add(1, std::memory_order_seq_cst); }
  void leave(uint32_t region) { word(region).fetch_sub(1, std::memory_order_seq_cst); }

  // Whether the home notifies us. Asked after enter(): it stays so until leave().
  bool shared(uint32_t region) const {
    return (word(region).load(std::memory_order_seq_cst) & kHeld) != 0;
  }
  // Whether a page of the region is cached or being fetched. It may be otherwise at once.
  bool in_use(uint32_t region) const {
    return (word(region).load(std::memory_order_relaxed) & kEntries) != 0;
  }
  // Whether none of its pages was ever entered that the home was asked about. A thread that
  // first notes that pages are of no use any more, and then finds this, need not look for them: one
  // that enters a page later sees the note before it maps the page.
  bool untouched(uint32_t region) const {
    return word(region).load(std::memory_order_seq_cst) == 0;
  }
  // What will be asked for, then that it was granted. Inside enter() and leave().
  void claim(uint32_t region, uint32_t epoch);
  void granted(uint32_t region);

  // A notification came. True: nothing is cached here, the region is released, and the home may be
  // sent the epoch. False: something is cached; nothing has changed.
  bool release(uint32_t region, uint32_t* epoch);

 private:
  // Low half: entries. High half: the epoch, and whether it was granted.
  static constexpr uint64_t kEntries = UINT32_MAX, kHeld = uint64_t{1} << 63;
  static constexpr int kEpochShift = 32;
  std::atomic<uint64_t>& word(uint32_t region) { return words_[region]; }
  const std::atomic<uint64_t>& word(uint32_t region) const { return words_[region]; }
  std::unique_ptr<std::atomic<uint64_t>[]> words_;
};
inline constexpr uint32_t kMaxEpoch = INT32_MAX;

// Of one segment, at its home. Size and time go with what is held. The owner's lock guards it.
class Directory {
 public:
  // Returns the pages of those regions that nobody shared before. `next`: the number of the next
  // notification.
  std::vector<PageRange> acquire(SharedRegions& sharer, uint32_t first, uint32_t count,
                                 uint32_t epoch, uint32_t pages, uint64_t next);
  // The sharer has released what it held under this epoch.
  void drop(SharedRegions& sharer, uint32_t region, uint32_t epoch);
  void drop_all(SharedRegions& sharer);
  // Whether a sharer other than `one` holds a region of these pages. Null: whether any does.
  bool any_but(const SharedRegions* one, const std::vector<PageRange>& ranges) const;
  // The pages that anybody may have, ascending, none beyond `pages`.
  std::vector<PageRange> shared(uint32_t pages) const;
  // A part of them: of whole regions from the one of page `from` on, at least one of them, and no
  // more than there are in `most` pages. *next: where the next part begins; kNoPage: nowhere.
  std::vector<PageRange> shared(uint32_t pages, uint32_t from, uint32_t most, uint32_t* next) const;

 private:
  void release(uint32_t region);
  std::map<uint32_t, uint32_t> sharers_;  // region, number of sharers (never 0)
};

}  // namespace cmi::memory
