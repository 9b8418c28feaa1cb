// Chunks of twins, and the list of free ones.
#include "core/memory/page/twin_pool.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "core/base/fault_point.hpp"
#include "core/base/prefetch_page.hpp"

namespace cmi::memory {

namespace {

constexpr size_t kTableSize = TwinPool::kMaxChunks * sizeof(std::atomic<std::byte*>);
static_assert(sizeof(std::atomic<std::byte*>) == sizeof(std::byte*));

// Private zeroed memory. Children of fork get none of it: they have no use for it, and with a copy
// of theirs to keep up, every twin would cost the parent a page fault again.
std::byte* map(size_t len, int flags) {
  void* p = mmap(nullptr, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  madvise(p, len, MADV_DONTFORK);
  return static_cast<std::byte*>(p);
}

uint32_t next_of(const std::byte* twin) {
  uint32_t next;
  std::memcpy(&next, twin, sizeof next);
  return next;
}

void set_next(std::byte* twin, uint32_t next) { std::memcpy(twin, &next, sizeof next); }

}  // namespace

TwinPool::TwinPool(uint32_t max_chunks) : max_chunks_(std::min(max_chunks, kMaxChunks)) {
  if (std::byte* table = map(kTableSize, MAP_NORESERVE); table != nullptr) {
    // All-zero bytes are null pointers; the table is too large to be touched just to say so again.
    chunks_ = std::launder(reinterpret_cast<std::atomic<std::byte*>*>(table));
  }
}

TwinPool::~TwinPool() {
  if (chunks_ == nullptr) return;
  {
    Guard g(grow_lock_);
    for (uint32_t i = 0; i < made_; ++i) {
      munmap(chunks_[i].load(std::memory_order_relaxed), kChunkSize);
    }
  }
  munmap(static_cast<void*>(chunks_), kTableSize);
}

uint32_t TwinPool::take() {
  if (uint32_t twin = pop(); twin != 0) return twin;
  Guard g(grow_lock_);
  // Another thread may have grown the pool while this one waited.
  if (uint32_t twin = pop(); twin != 0) return twin;
  return grow();
}

bool TwinPool::any_free() {
  return std::any_of(lists_.begin(), lists_.end(), [](FreeList& list) {
    Guard g(list.lock);
    return list.first != 0;
  });
}

void TwinPool::prefetch() {
  FreeList& own = list(0);
  uint32_t next;
  {
    Guard g(own.lock);
    next = own.first;
  }
  if (next != 0) prefetch_page(at(next));
}

void TwinPool::give(uint32_t twin) {
  if (twin == 0) return;
  std::byte* memory = at(twin);
  FreeList& own = list(0);
  Guard g(own.lock);
  set_next(memory, own.first);
  own.first = twin;
}

// Threads take turns in being assigned a list.
TwinPool::FreeList& TwinPool::list(uint32_t steps_from_own) {
  static std::atomic<uint32_t> threads{0};
  static thread_local constinit uint32_t mine = UINT32_MAX;
  if (mine == UINT32_MAX) mine = threads.fetch_add(1, std::memory_order_relaxed) % kLists;
  return lists_[(mine + steps_from_own) % kLists];
}

uint32_t TwinPool::pop() {
  for (uint32_t i = 0; i < kLists; ++i) {
    FreeList& from = list(i);
    Guard g(from.lock);
    const uint32_t twin = from.first;
    if (twin == 0) continue;
    from.first = next_of(at(twin));
    // A thread that stores in order pops this twin next, and reads the link that is in it.
    if (from.first != 0) __builtin_prefetch(at(from.first), 1);
    return twin;
  }
  return 0;
}

// Maps one chunk; its first twin is the caller's, the others go to the thread's list.
uint32_t TwinPool::grow() {
  if (chunks_ == nullptr || made_ == max_chunks_) return 0;
  if (made_ == 1 && fault_point_fails("few_twins")) return 0;
  const int saved_errno = errno;  // the interrupted client's
  std::byte* chunk = map(kChunkSize, MAP_POPULATE);
  errno = saved_errno;
  if (chunk == nullptr) return 0;

  const uint32_t first = made_ * kChunkTwins + 1;
  for (uint32_t i = 1; i + 1 < kChunkTwins; ++i) {
    set_next(chunk + size_t{i} * kPageSize, first + i + 1);
  }
  // Release: pairs with at(), for threads that get one of these twins.
  chunks_[made_++].store(chunk, std::memory_order_release);

  FreeList& own = list(0);
  Guard g(own.lock);
  set_next(chunk + size_t{kChunkTwins - 1} * kPageSize, own.first);
  own.first = first + 1;
  return first;
}

}  // namespace cmi::memory
