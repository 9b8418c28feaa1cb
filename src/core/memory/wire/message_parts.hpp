// Lists that several messages hold: ranges of pages, dirty intents.
#pragma once

#include "core/memory/wire/message.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

// Pages of a segment as they follow each other in a message: u32 first, u32 count.
class PageRangeList {
 public:
  static constexpr size_t kItem = 2 * sizeof(uint32_t);
  PageRangeList() = default;
  explicit PageRangeList(Bytes bytes) : bytes_(bytes) {}  // a whole number of them
  size_t size() const { return bytes_.size() / kItem; }
  PageRange operator[](size_t i) const {
    Reader in(bytes_.subspan(i * kItem, kItem));
    PageRange r;
    r.first = in.get<uint32_t>();
    r.count = in.get<uint32_t>();
    return r;
  }
  static void put(Writer& out, const PageRange& r) {
    out.put(r.first);
    out.put(r.count);
  }

 private:
  Bytes bytes_;
};

// Dirty intents: u32 page, u8 epoch.
class DirtyIntentList {
 public:
  DirtyIntentList() = default;
  explicit DirtyIntentList(Bytes bytes) : bytes_(bytes) {}  // a whole number of them
  size_t size() const { return bytes_.size() / kDirtyIntentSize; }
  DirtyIntent operator[](size_t i) const {
    Reader in(bytes_.subspan(i * kDirtyIntentSize, kDirtyIntentSize));
    DirtyIntent m;
    m.page = in.get<uint32_t>();
    m.epoch = in.get<uint8_t>();
    return m;
  }
  static void put(Writer& out, const DirtyIntent& m) {
    out.put(m.page);
    out.put(m.epoch);
  }

 private:
  Bytes bytes_;
};

}  // namespace cmi::memory
