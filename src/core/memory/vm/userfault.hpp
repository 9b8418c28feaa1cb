// userfaultfd and PAGEMAP_SCAN: the only place that talks to them.
// Threads: any, the fault handler included (no allocation, no lock).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "core/base/fd.hpp"
#include "core/base/ids.hpp"
#include "core/base/status.hpp"

namespace cmi::memory {

// A version of Linux, comparable: kernel_version(6, 4) is 6.4.
constexpr uint32_t kernel_version(uint32_t major, uint32_t minor) { return major * 1000 + minor; }

inline constexpr uint32_t kOldestKernel = kernel_version(5, 19);

// What the running kernel offers beyond the least we need.
struct KernelFeatures {
  bool continue_protected = false;  // UFFDIO_CONTINUE_MODE_WP, 6.4
  bool poison = false;              // UFFDIO_POISON, 6.6; thread mode needs it
  bool async_tracking = false;      // UFFD_FEATURE_WP_ASYNC and PAGEMAP_SCAN, 6.7
};

class Userfault {
 public:
  enum class Kind {
    kImport,   // missing, minor and write-protect faults come as SIGBUS to the thread
    kThreads,  // the same faults are read with next_fault(), those of system calls too
    kGuarded,  // write-protect faults only, as SIGBUS: read-only views at home, and writable ones
               // where there is no async_tracking
    kTracked,  // the kernel notes stores by itself: writable views at home
  };
  Userfault() = default;
  // kNotSupp: the kernel or its settings do not allow it; *why (static text) says what to do.
  static Result<Userfault> open(Kind kind, const char** why);
  // One that another process has passed, for protect() on its views. Empty: it is none.
  static Userfault of(Fd passed);
  explicit operator bool() const { return static_cast<bool>(fd_); }

  Status add(void* addr, size_t len);   // starts watching a view, until it is unmapped
  void remove(void* addr, size_t len);  // stops; nothing there is protected any more
  // Whether the page is one of a view that somebody watches still, and not unmapped meanwhile. May
  // make it count as stored to.
  bool watches(void* page);

  // Maps pages of the file that are in the page cache into the view. Pages that are mapped already
  // stay as they are. False: the kernel refused (beyond the file's end, or no memory).
  bool map(void* addr, size_t len, bool writable);
  // The pages at the front of the range that are not mapped, writable. Returns their length.
  size_t map_absent(void* addr, size_t len);
  // Later stores fault; returns when no CPU can still store. False: not all of it is watched.
  // `page`: of what is mapped there; addr and len are multiples of it.
  bool protect(void* addr, size_t len, size_t page = kPageSize);
  // In the process that has passed the descriptor, as much as is one range of watched mappings;
  // does nothing where none is, or where the process has ended. It may be stopped.
  void protect_elsewhere(uint64_t addr, size_t len);
  void unprotect(void* addr, size_t len, size_t page = kPageSize);  // and wakes whoever waits

  // kThreads only.
  struct Fault {
    std::byte* addr = nullptr;
    bool write = false;
    pid_t thread = 0;
  };
  bool next_fault(Fault* fault);  // false: none is waiting; see fd()
  int fd() const { return fd_.get(); }
  void wake(void* addr, size_t len);  // threads that wait there try again
  // Whoever touches a page of the range next gets SIGBUS, or EFAULT from its system call, until it
  // is zapped; wakes, once. Pages that are mapped stay as they are.
  void poison(void* addr, size_t len);

  // Whether the kernel's pages are those of the protocol, which is what a page is protected by.
  static bool pages_fit();
  static const KernelFeatures& features();
  // Finds out what the kernel has, and forgets what came after Linux `newest`. Once for each
  // context, before anything above.
  static void probe(uint32_t newest);

 private:
  Fd fd_;
  uint64_t modes_ = 0;  // UFFDIO_REGISTER_MODE_*
};

// Takes pages out of one view; their contents stay in the file. Returns when no CPU can use them.
void zap(void* addr, size_t len);

// Finds the pages of [addr, addr+len) of the process behind `pagemap` that were stored to since the
// last call, and protects them again in the same step. Up to `max` ranges; *next is where to go on.
// Large pages are found only where all of one is looked at. Negative: errno.
struct WrittenRange {
  uint64_t start, end;
};
int scan_written(int pagemap, uint64_t addr, uint64_t len, WrittenRange* out, int max,
                 uint64_t* next);
// Protects all of these pages, also those that nobody has touched yet, and forgets what was stored
// to them. False: not all of them are watched.
bool forget_written(int pagemap, uint64_t addr, uint64_t len);

}  // namespace cmi::memory
