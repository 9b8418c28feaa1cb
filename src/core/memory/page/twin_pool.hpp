// A pool of 4 KiB twins named by 32-bit indices, so that a page's state has room for one. Its
// memory is touched when it is made, because a twin is taken inside the fault handler, where a page
// fault more would double the cost. It grows as needed and never shrinks. Any thread, the fault
// handler too: no malloc. The holder of an index owns its 4 KiB alone.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"

namespace cmi::memory {

class TwinPool {
 public:
  static constexpr size_t kChunkSize = size_t{1} << 20;
  static constexpr uint32_t kChunkTwins = kChunkSize / kPageSize;
  static constexpr uint32_t kMaxChunks = 65536;  // 64 GiB of twins
  static constexpr uint32_t kLeastChunks = 2;    // fewer would publish what is just being stored

  // Twins of one process may take this part of what segments of the node may (CMI_MEM_MAX).
  static constexpr uint64_t kShare = 4;
  static uint32_t chunks_of(uint64_t mem_max) {
    return static_cast<uint32_t>(
        std::clamp<uint64_t>(mem_max / kShare / kChunkSize, kLeastChunks, kMaxChunks));
  }

  // `max_chunks` bounds the memory, at most kMaxChunks.
  explicit TwinPool(uint32_t max_chunks = kMaxChunks);
  // Unmaps everything, taken or not. Not to be run in a forked child, which has none of the memory.
  ~TwinPool();
  TwinPool(const TwinPool&) = delete;
  TwinPool& operator=(const TwinPool&) = delete;

  // A twin of unspecified content, or 0 when memory or max_chunks is exhausted.
  uint32_t take();
  // Whether take() would find one that was given back.
  bool any_free();
  // Brings to the processor's caches what the calling thread is to take next.
  void prefetch();
  // Gives back what take() returned; its bytes belong to the pool from here on. 0 is ignored.
  void give(uint32_t twin);
  // Where the twin lies, for as long as it is taken; nullptr for 0. Lock-free.
  std::byte* at(uint32_t twin) const {
    if (twin == 0) return nullptr;
    uint32_t n = twin - 1;
    // Acquire: whoever got the index got it after grow() stored the chunk with release.
    return chunks_[n / kChunkTwins].load(std::memory_order_acquire) +
           size_t{n % kChunkTwins} * kPageSize;
  }

 private:
  // Free twins, in some lists, so that threads seldom meet: each gives to its own, and takes from
  // the others when that is empty.
  struct alignas(64) FreeList {
    Mutex lock;
    // 0 for none. The first word of a free twin is the index of the next.
    uint32_t first CMI_GUARDED_BY(lock) = 0;
  };
  static constexpr uint32_t kLists = 16;

  uint32_t pop();
  uint32_t grow() CMI_REQUIRES(grow_lock_);
  FreeList& list(uint32_t steps_from_own);

  const uint32_t max_chunks_;
  // Table of kMaxChunks, mapped and zero at first, so that unused parts of it cost nothing. An
  // entry is set once. nullptr: could not be mapped, the pool is empty for ever.
  std::atomic<std::byte*>* chunks_ = nullptr;

  // Lock order: grow_lock_, then that of one list. Memory is mapped under grow_lock_ alone, so that
  // give() and lucky take()s do not wait for the kernel.
  Mutex grow_lock_;
  uint32_t made_ CMI_GUARDED_BY(grow_lock_) = 0;  // chunks in the table, a prefix
  std::array<FreeList, kLists> lists_;
};

}  // namespace cmi::memory
