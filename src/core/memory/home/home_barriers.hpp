// Barriers and swaps of this node's processes on segments of the node.
// Threads: application threads; both calls wait for importers.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "core/memory/home/home_core.hpp"

namespace cmi::memory {

class Barriers {
 public:
  explicit Barriers(HomeCore& home) : home_(home) {}
  // Pages of segments, by their ids.
  using Lines = std::map<int32_t, PageSet>;
  // Publishes what this node has stored, and the pages named in any case: what a device has written
  // to them the kernel does not note. The clock is read where there is something to wait for.
  // kStore: some importer or process of the node did not answer in time.
  Status barrier(Nanos within, const Lines& named = {});
  // The value that was found. kReconfig: the word's page is in flux; kBound: it lies past the
  // break; kInval: there is no such word; kNoMem: the node's lock could not be had.
  Result<uint64_t> cas(int32_t id, size_t offset, uint64_t expected, uint64_t desired,
                       Deadline deadline);

 private:
  struct Swap;
  Status swap_at_home(Swap* swap, const Deadline& deadline);
  void publish_swapped(Segment& s, Swap* swap) CMI_EXCLUDES(home_.mu);
  using Owners = std::vector<std::pair<node::ContextSlot, int32_t>>;  // and the segment
  void scan(const SegmentPtr& segment, const Lines& named, Owners* owners, Finished* done)
      CMI_EXCLUDES(home_.mu);
  bool ask_owners(const Owners& owners, const Lines& named, Deadline deadline);

  HomeCore& home_;
};

}  // namespace cmi::memory
