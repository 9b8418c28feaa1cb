// The program's ioctl(): counts, and does what the C library's does. Relaxed counters: who reads
// them has waited for the work.
#include "system/kernel_work.hpp"

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstddef>

#include "support/simulated.hpp"

namespace {

constexpr uint64_t kPageBytes = 4096;
// PAGEMAP_SCAN and the beginning of its argument, which the headers of Debian 12 lack.
struct ScanArgument {
  uint64_t size, flags, start, end;
  std::array<uint64_t, 8> rest;
};
constexpr unsigned long kPagemapScan = _IOWR('f', 16, ScanArgument);

std::atomic<uint64_t> scans, scanned_pages, protections, protected_pages, others;
CMI_OF_PROCESS(scans);
CMI_OF_PROCESS(scanned_pages);
CMI_OF_PROCESS(protections);
CMI_OF_PROCESS(protected_pages);
CMI_OF_PROCESS(others);

void add(std::atomic<uint64_t>& counter, uint64_t n) {
  counter.fetch_add(n, std::memory_order_relaxed);
}

}  // namespace

// A signal handler of the library calls it as well.
extern "C" __attribute__((visibility("default"))) int ioctl(int fd, unsigned long request,
                                                            ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request == kPagemapScan) {
    const auto* scan = static_cast<const ScanArgument*>(argument);
    add(scans, 1);
    add(scanned_pages, (scan->end - scan->start) / kPageBytes);
  } else if (request == UFFDIO_WRITEPROTECT) {
    add(protections, 1);
    add(protected_pages, static_cast<const uffdio_writeprotect*>(argument)->range.len / kPageBytes);
  } else if (request != UFFDIO_WAKE) {  // of a thread whose fault was answered before
    add(others, 1);
  }
  return static_cast<int>(::syscall(SYS_ioctl, fd, request, argument));
}

namespace cmi::test {

KernelWork kernel_work() {
  return {scans.load(), scanned_pages.load(), protections.load(), protected_pages.load(),
          others.load()};
}

}  // namespace cmi::test
