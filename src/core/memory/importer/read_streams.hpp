// Loads in order: misses at neighbouring pages widen what one read fetches. From some width on, the
// next pages are asked for ahead, so that they travel while a reader loads these. A few readers of
// one segment at a time. Pure but for the lock, which is a leaf; the fault handler too.
#pragma once

#include <array>
#include <cstdint>

#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

class Streams {
 public:
  static constexpr uint32_t kMaxWindow = 256;  // pages of one read: 1 MiB
  static constexpr uint32_t kAheadFrom = 32;   // width of a window from which on others go ahead
  static constexpr uint32_t kDepth = 1024;     // pages asked for beyond where the reader is

  // A miss: how many pages to fetch from there on.
  uint32_t miss(uint32_t page);
  // The fetch for the miss at `page` reached to `end`. To be called if it took more than that page.
  void taken(uint32_t page, uint32_t end);
  // A reader has come to `page`. Returns what to ask for now. To be called until it returns
  // nothing.
  PageRange ahead(uint32_t page, uint32_t pages);

 private:
  struct Stream {
    uint32_t at = UINT32_MAX;   // where the reader was seen last
    uint32_t end = UINT32_MAX;  // everything before has been asked for
    uint32_t window = 0;
  };
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_write_backs);
  std::array<Stream, 4> streams_ CMI_GUARDED_BY(mu_);
  uint32_t victim_ CMI_GUARDED_BY(mu_) = 0;
};

}  // namespace cmi::memory
