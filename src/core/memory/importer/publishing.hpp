// Barriers and cflush of the importing side. Application threads; calls wait for homes.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/memory/importer/importer_core.hpp"
#include "core/memory/importer/patience.hpp"

namespace cmi::memory {

// Nothing is dirty and nothing under way: what this thread stored, or has seen stored by others of
// this process, is home.
bool all_published(const ImporterCore& core);
// What a barrier says, given that what it waited for came home, or not: kHw, kStore or kOk.
Status verdict(ImporterCore& core, LossMark& mark, bool good);

class Publishing {
 public:
  explicit Publishing(ImporterCore& core) : core_(core) {}

  LossMark losses() const { return core_.losses.mark(); }
  // Everything dirty at entry is at its home, seen by all, when this returns kOk. kStore, kHw:
  // stores were lost since *mark, or did not come home in time.
  Status barrier(LossMark& mark, const Patience& patience);
  // Goes on for `span` after whatever shows that it moves on, the end of the sending first.
  Status barrier(LossMark& mark, Nanos span) { return barrier(mark, Patience{{}, span}); }

  using Addresses = std::vector<std::pair<std::shared_ptr<const View>, const std::byte*>>;
  // The same for the pages that hold the addresses. *failed: what the first address that cannot be
  // accessed raises, and its index.
  Status flush(const Addresses& where, LossMark& mark, const Patience& patience, Exception* failed,
               size_t* failed_at);

 private:
  // Hot pages that a barrier found with an earlier write-back under way.
  using BusyPages = std::map<std::shared_ptr<Import>, std::vector<uint32_t>>;
  using Named = std::map<std::shared_ptr<Import>, std::vector<uint32_t>>;
  bool collect(BusyPages* busy, bool again, const Patience& patience);
  Exception may_flush(const View& view, uint32_t page, Deadline deadline);
  bool flush_pages(const Named& named, const Patience& patience);
  Exception why_not_home(const View& view, uint32_t page, Deadline deadline);

  ImporterCore& core_;
};

}  // namespace cmi::memory
