// The cache of one import: the file that its views map, the table of its pages, and how many of
// them take memory. Any thread; no lock.
//
// No-fault rule: the library touches pages through data() only, never through a view.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/base/fd.hpp"
#include "core/base/ids.hpp"
#include "core/memory/page/page.hpp"

namespace cmi::memory {

// The size of a cache: as it was set, and the pages that take memory.
class CacheUse {
 public:
  static constexpr uint32_t kNoLimit = UINT32_MAX;

  // `pages`: the most that may take memory.
  void set_size(size_t bytes, size_t pages) {
    bytes_.store(bytes, std::memory_order_relaxed);
    limit_.store(static_cast<uint32_t>(std::min<size_t>(pages, kNoLimit)),
                 std::memory_order_release);
  }
  size_t size() const { return bytes_.load(std::memory_order_relaxed); }
  uint32_t limit() const { return limit_.load(std::memory_order_acquire); }
  // Bytes that may take memory; UINT64_MAX: as many as there are.
  uint64_t most_bytes() const {
    return limit() == kNoLimit ? UINT64_MAX : uint64_t{limit()} * kPageSize;
  }
  uint32_t backed() const { return backed_.load(std::memory_order_relaxed); }
  bool has_room(uint32_t more) const { return uint64_t{backed()} + more <= limit(); }
  void back_one() { backed_.fetch_add(1, std::memory_order_relaxed); }
  void gave_back(uint32_t pages) { backed_.fetch_sub(pages, std::memory_order_relaxed); }
  // Where the search for pages to give back goes on; it moves by `pages`, over all of them and
  // beyond.
  uint32_t sweep(uint32_t pages) { return hand_.fetch_add(pages, std::memory_order_relaxed); }
  // Memory is asked for page by page from now on: the file's reservation is gone.
  void end_reservation() { unreserved_.store(true, std::memory_order_release); }
  bool unreserved() const { return unreserved_.load(std::memory_order_acquire); }
  // Whether the pages that an access waited for last got their memory, mapped ones from their
  // home's. An access that waits for some has no home to wait for. What is fetched ahead says only
  // that there is some again.
  void note_memory(bool there) {
    if (there == lacks_memory()) lacks_memory_.store(!there, std::memory_order_relaxed);
  }
  bool lacks_memory() const { return lacks_memory_.load(std::memory_order_relaxed); }

 private:
  std::atomic<size_t> bytes_{0};
  std::atomic<uint32_t> limit_{kNoLimit}, backed_{0}, hand_{0};
  std::atomic<bool> unreserved_{false}, lacks_memory_{false};
};

class CacheFile {
 public:
  // Once, by the first attach. `table`: a Page for each page, all zero, which are absent ones.
  void fill(Fd file, Mapping service, Mapping table) {
    file_ = std::move(file);
    table_memory_ = std::move(table);
    table_ = reinterpret_cast<Page*>(table_memory_.data());
    service_ = std::move(service);
    ready_.store(true, std::memory_order_release);
  }
  // What follows may be used.
  bool ready(std::memory_order order = std::memory_order_acquire) const {
    return ready_.load(order);
  }
  int file() const { return file_.get(); }
  Page& page(uint32_t index) const { return table_[index]; }
  uint32_t index_of(const Page& page) const { return static_cast<uint32_t>(&page - table_); }
  std::byte* data(uint32_t page) const { return service_.data() + size_t{page} * kPageSize; }

  CacheUse use;

 private:
  Fd file_;
  Mapping service_;
  Mapping table_memory_;
  Page* table_ = nullptr;
  std::atomic<bool> ready_{false};
};

}  // namespace cmi::memory
