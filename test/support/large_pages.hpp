// Large pages for one test: it has the kernel's pool for itself among the tests of this machine,
// grown by as many as it needs where the process may, and gives back what it took.
//
//   LargePages pages(8);
//   if (!pages.enough()) return skip(pages.reason());
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "core/base/fd.hpp"

namespace cmi::test {

inline constexpr uint64_t kLarge = uint64_t{2} << 20;

class LargePages {
 public:
  explicit LargePages(uint64_t wanted) : pool_(::open(kPool, O_RDONLY | O_CLOEXEC)) {
    if (!pool_) {
      reason_ = "this kernel has no large pages";
      return;
    }
    // One test after the other; a lock on the kernel's own file leaves none behind.
    for (int tries = 0; ::flock(pool_.get(), LOCK_EX | LOCK_NB) != 0; ++tries) {
      if (tries == 800) {
        reason_ = "other tests have had the large pages for 40 seconds";
        return;
      }
      const timespec pause{0, 50'000'000};
      ::nanosleep(&pause, nullptr);
    }
    const uint64_t there = free();
    if (there < wanted) grow(wanted - there);
    if (free() < wanted) {
      reason_ = "only " + std::to_string(free()) + " large pages are free, not " +
                std::to_string(wanted) + "; see /proc/sys/vm/nr_hugepages";
    }
  }
  ~LargePages() {
    if (before_ != kUnchanged) set(before_);
  }
  LargePages(const LargePages&) = delete;
  LargePages& operator=(const LargePages&) = delete;

  bool enough() const { return reason_.empty(); }
  const char* reason() const { return reason_.c_str(); }

  static uint64_t free() {
    std::ifstream file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    uint64_t n = 0;
    file >> n;
    return n;
  }

 private:
  static constexpr const char* kPool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
  static constexpr uint64_t kUnchanged = UINT64_MAX;

  static bool set(uint64_t n) {
    std::ofstream file(kPool);
    file << n << std::flush;
    return static_cast<bool>(file);
  }
  void grow(uint64_t more) {
    uint64_t now = 0;
    std::ifstream(kPool) >> now;
    if (set(now + more)) before_ = now;
  }

  Fd pool_;
  uint64_t before_ = kUnchanged;  // pages of the pool
  std::string reason_;
};

// The kernel's page size of the mapping that holds `address`, in this process; 0: none does.
inline uint64_t kernel_page_size(uint64_t address) {
  std::ifstream smaps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long begin = 0, end = 0, kib = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      here = address >= begin && address < end;
    } else if (here && std::sscanf(line.c_str(), "KernelPageSize: %lu", &kib) == 1) {
      return uint64_t{kib} << 10;
    }
  }
  return 0;
}

}  // namespace cmi::test
