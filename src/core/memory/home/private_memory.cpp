#include "core/memory/home/private_memory.hpp"

#include <sys/mman.h>

#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/vm/guarded_copy.hpp"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4  // 5.7
#endif

namespace cmi::memory {

namespace {
bool all_zero(const std::byte* page) {
  uint64_t word;
  for (size_t i = 0; i < kPageSize; i += sizeof word) {
    std::memcpy(&word, page + i, sizeof word);
    if (word != 0) return false;
  }
  return true;
}
}  // namespace

Status private_copy(const std::byte* content, size_t size, const std::vector<PageRange>& pages,
                    Mapping* copy, PageSet* broken) {
  void* fresh = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return Status::kNoMem;
  *copy = Mapping(fresh, size);
  for (const PageRange& r : pages) {
    for (uint32_t page = r.first; page < r.first + r.count; ++page) {
      const std::byte* from = content + size_t{page} * kPageSize;
      std::byte* to = copy->data() + size_t{page} * kPageSize;
      const bool intact = unless_broken(from, kPageSize, [&] {
        if (!all_zero(from)) std::memcpy(to, from, kPageSize);
      });
      if (!intact) broken->add({page, 1});
    }
  }
  return Status::kOk;
}

Status move_pages(const Mapping& copy, std::byte* at, const std::vector<PageRange>& pages,
                  bool locked) {
  const auto for_each = [&](const auto& act) {
    for (const PageRange& r : pages) {
      if (!act(size_t{r.first} * kPageSize, size_t{r.count} * kPageSize)) return false;
    }
    return true;
  };
  const bool moved = for_each([&](size_t offset, size_t n) {
    return mremap(copy.data() + offset, n, n, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                  at + offset) != MAP_FAILED;
  });
  fault_point("give_back_moved");
  if (!moved) return Status::kNoMem;
  const bool good =
      !locked || for_each([&](size_t offset, size_t n) { return mlock(at + offset, n) == 0; });
  if (!good) trace(kFacSeg, kWarn, "memory of a segment is given back, and not locked any more");
  return Status::kOk;
}

}  // namespace cmi::memory
