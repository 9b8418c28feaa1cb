// What a home and one importer of its machine share besides the segment: a word by which the home
// says that the importer is cut off, one by which it says that nobody caches pages of the segment,
// and a mark for each page that the importer stores to. The home makes the file and seals its size,
// so neither side can take pages of it from the other.
//
// A wrong mark puts a page of this importer's in flux, no more; a wrong word of the home's costs
// this importer its pages, or has its stores go unannounced. Neither crashes the other side. Any
// thread of either process; each access is one atomic byte or word.
#pragma once

#include <cstdint>

#include "core/base/fd.hpp"
#include "core/base/ids.hpp"
#include "core/base/status.hpp"

namespace cmi::memory {

class LocalControl {
 public:
  LocalControl() = default;
  // The home's, for a segment of so many pages. kNoMem: there is no memory or no descriptor.
  static Result<LocalControl> make(uint32_t pages);
  // The importer's, of the file that the home has passed. kInval: it is not what make() makes.
  static Result<LocalControl> open(Fd file, uint32_t pages);

  explicit operator bool() const { return static_cast<bool>(map_); }
  int file() const { return file_.get(); }

  // The home: nothing may be stored any more. Before it protects the importer's pages.
  void cut_off() { __atomic_store_n(words(), 1, __ATOMIC_SEQ_CST); }
  bool is_cut_off() const { return __atomic_load_n(words(), __ATOMIC_SEQ_CST) != 0; }

  // The home: every importer that uses the segment maps it, so a store is published when it is
  // made. Taken back before anybody is let cache a page; what an importer has stored and then finds
  // this still true is in the memory that such a one reads.
  // Fence, which pairs with the importer's between its stores and alone().
  void set_alone(bool alone) {
    __atomic_store_n(words() + 1, alone ? 1U : 0U, __ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
  }
  bool alone() const { return __atomic_load_n(words() + 1, __ATOMIC_SEQ_CST) == 1; }

  // The importer: before the page becomes writable, and when what was stored is published.
  void mark(uint32_t page, bool on) {
    __atomic_store_n(marks() + page, static_cast<uint8_t>(on), __ATOMIC_SEQ_CST);
  }
  template <class Visit>
  void each_mark(Visit visit) const {
    for (uint32_t page = 0; page < pages_; ++page) {
      if (__atomic_load_n(marks() + page, __ATOMIC_SEQ_CST) != 0) visit(page);
    }
  }

 private:
  static constexpr size_t kHead = kPageSize;
  LocalControl(Fd file, Mapping map, uint32_t pages)
      : file_(std::move(file)), map_(std::move(map)), pages_(pages) {}
  static Result<LocalControl> map(Fd file, uint32_t pages);
  static size_t size_for(uint32_t pages) {
    return kHead + (size_t{pages} + kPageSize - 1) / kPageSize * kPageSize;
  }
  uint32_t* words() const { return reinterpret_cast<uint32_t*>(map_.data()); }
  uint8_t* marks() const { return reinterpret_cast<uint8_t*>(map_.data()) + kHead; }

  Fd file_;
  Mapping map_;
  uint32_t pages_ = 0;
};

}  // namespace cmi::memory
