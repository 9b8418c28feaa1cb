// Stores in order: when first stores have come to several neighbouring pages one after the other,
// the pages behind are made writable ahead. A few such streams of one segment at a time. Pure but
// for the lock, which is a leaf; the fault handler too.
#pragma once

#include <array>
#include <cstdint>

#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"

namespace cmi::memory {

class StoreStreams {
 public:
  // From this page of a stream on, pages behind it are made writable with it. A thread that stores
  // to fewer pages in order puts no page in flux that it has not stored to.
  static constexpr uint32_t kFrom = 8;
  // Pages made writable at once: as many as one read ahead brings.
  static constexpr uint32_t kMaxWindow = 256;
  // A window of kLongWindow pages or more is at most one kPartOfStream-th of its stream. That
  // bounds the pages that are compared, or are in flux after a death, though nobody stored to them.
  static constexpr uint32_t kLongWindow = 32, kPartOfStream = 4;

  // A first store: how many pages to make writable, from this one on. At most twice as many as the
  // last time, and never more than the stream had before, or a part of that where it is long.
  uint32_t store(uint32_t page);
  // The window of the store to `page` reached to `end`. To be called if it took fewer pages than
  // store() has said.
  void taken(uint32_t page, uint32_t end);

 private:
  struct Stream {
    uint32_t at = UINT32_MAX;   // of the last first store
    uint32_t end = UINT32_MAX;  // what is before is writable: the next first store of the stream
    uint32_t length = 0;        // pages in front of `at`
  };
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_write_backs);
  std::array<Stream, 4> streams_ CMI_GUARDED_BY(mu_);
  uint32_t victim_ CMI_GUARDED_BY(mu_) = 0;
};

}  // namespace cmi::memory
