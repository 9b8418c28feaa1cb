// What a piece of code asks the kernel for, counted: the test program has an ioctl() of its own,
// which the library in its processes calls like everybody else. So work is compared without a
// clock, and the library needs no counters for it. Any thread.
#pragma once

#include <cstdint>

namespace cmi::test {

struct KernelWork {
  uint64_t scans;            // PAGEMAP_SCAN: which pages have been stored to
  uint64_t scanned_pages;    // pages that those calls were to look at
  uint64_t protections;      // UFFDIO_WRITEPROTECT
  uint64_t protected_pages;  // pages of those calls
  uint64_t others;           // every other ioctl()

  KernelWork operator-(const KernelWork& before) const {
    return {scans - before.scans, scanned_pages - before.scanned_pages,
            protections - before.protections, protected_pages - before.protected_pages,
            others - before.others};
  }
  bool operator==(const KernelWork&) const = default;
};

// Of this process since it began.
KernelWork kernel_work();

}  // namespace cmi::test
