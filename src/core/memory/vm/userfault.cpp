// userfaultfd and PAGEMAP_SCAN. Constants that the kernel headers of Debian 12 lack are defined
// here.
#include "core/memory/vm/userfault.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/base/ids.hpp"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_UNPOPULATED
#define UFFD_FEATURE_WP_UNPOPULATED (1 << 13)
#endif
#ifndef UFFD_FEATURE_POISON
#define UFFD_FEATURE_POISON (1 << 14)
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef UFFDIO_CONTINUE_MODE_WP
#define UFFDIO_CONTINUE_MODE_WP 2
#endif

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24  // 5.18
#endif

namespace cmi::memory {

namespace {

KernelFeatures g_features;  // written by probe(), when no other thread of the library runs

struct ScanArg {  // struct pm_scan_arg of <linux/fs.h>, 6.7
  uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
struct PoisonArg {  // struct uffdio_poison, 6.6
  uffdio_range range;
  uint64_t mode;
  int64_t updated;
};
constexpr unsigned long kPoison = _IOWR(UFFDIO, 0x08, PoisonArg);
constexpr unsigned long kNewUserfault = _IO(UFFDIO, 0x00);  // of /dev/userfaultfd, 6.1
struct ScanRegion {                                         // struct page_region
  uint64_t start, end, categories;
};
static_assert(sizeof(ScanArg) == 96 && sizeof(ScanRegion) == 24);
constexpr unsigned long kPagemapScan = _IOWR('f', 16, ScanArg);
constexpr uint64_t kPageIsWritten = 1 << 1;
constexpr uint64_t kScanWpMatching = 1 << 0, kScanCheckWpAsync = 1 << 1;

constexpr uint64_t kBaseFeatures = UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM |
                                   UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_EXACT_ADDRESS;

// A descriptor with these flags, or -1 and errno. Where the system call is refused (to ordinary
// users who want the faults of system calls as well, and to all by containers' usual seccomp
// profiles), the device may still be open to us.
int open_with_flags(int flags) {
  int fd = static_cast<int>(syscall(SYS_userfaultfd, flags));
  if (fd >= 0 || (errno != EPERM && errno != ENOSYS)) return fd;
  const int refused = errno;
  Fd device(open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
  fd = device ? ioctl(device.get(), kNewUserfault, flags) : -1;
  errno = refused;
  return fd;
}

// A descriptor with the features asked for, or -1 and errno.
int open_with(uint64_t features, bool full = false) {
  int fd = open_with_flags(O_CLOEXEC | O_NONBLOCK | (full ? 0 : UFFD_USER_MODE_ONLY));
  if (fd < 0) return -1;
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = features;
  if (ioctl(fd, UFFDIO_API, &api) != 0) {
    int e = errno;
    close(fd);
    errno = e;
    return -1;
  }
  return fd;
}

bool probe_continue_protected() {
  Fd fd(open_with(kBaseFeatures));
  Fd file(static_cast<int>(syscall(SYS_memfd_create, "cmi-probe", 1u)));
  if (!fd || !file || ftruncate(file.get(), kPageSize) != 0) return false;
  Mapping service(mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0),
                  kPageSize);
  Mapping view(mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0),
               kPageSize);
  if (service.data() == MAP_FAILED || view.data() == MAP_FAILED) return false;
  service.data()[0] = std::byte{1};
  uffdio_register reg{};
  reg.range = {reinterpret_cast<uint64_t>(view.data()), kPageSize};
  reg.mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP;
  if (ioctl(fd.get(), UFFDIO_REGISTER, &reg) != 0) return false;
  uffdio_continue c{};
  c.range = reg.range;
  c.mode = UFFDIO_CONTINUE_MODE_WP;
  return ioctl(fd.get(), UFFDIO_CONTINUE, &c) == 0;
}

bool probe_async_tracking() {
  Fd fd(open_with(kBaseFeatures | UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED));
  if (!fd) return false;
  Fd pagemap(open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC));
  ScanArg arg{};
  arg.size = sizeof arg;
  return pagemap && ioctl(pagemap.get(), kPagemapScan, &arg) >= 0;
}

}  // namespace

bool Userfault::pages_fit() {
  return ::sysconf(_SC_PAGESIZE) == static_cast<long>(kPageSize) &&
         !fault_point_fails("kernel_has_larger_pages");
}

const KernelFeatures& Userfault::features() { return g_features; }

void Userfault::probe(uint32_t newest) {
  g_features.continue_protected = newest >= kernel_version(6, 4) && probe_continue_protected();
  g_features.poison =
      newest >= kernel_version(6, 6) && Fd(open_with(kBaseFeatures | UFFD_FEATURE_POISON));
  g_features.async_tracking = newest >= kernel_version(6, 7) && probe_async_tracking();
}

Result<Userfault> Userfault::open(Kind kind, const char** why) {
  uint64_t features = kBaseFeatures;
  const bool threads = kind == Kind::kThreads;
  if (threads && !g_features.poison) {
    *why = "CMI_FAULT=thread needs Linux 6.6 or later";
    return Status::kNotSupp;
  }
  if (threads) {
    features |= UFFD_FEATURE_THREAD_ID | UFFD_FEATURE_POISON;
  } else if (kind == Kind::kTracked) {
    features |= UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED;
  } else {
    features |= UFFD_FEATURE_SIGBUS;
  }
  Userfault u;
  u.fd_.reset(open_with(features, threads));
  if (!u.fd_ && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
    *why = "no userfaultfd: too many open files, or no memory";
    return Status::kNoMem;
  }
  if (!u.fd_) {
    *why =
        threads ? "CMI_FAULT=thread needs a userfaultfd for the faults of system calls, which this "
                  "process may not have: it takes CAP_SYS_PTRACE, or the sysctl "
                  "vm.unprivileged_userfaultfd at 1, or access to /dev/userfaultfd"
        : errno == EPERM || errno == ENOSYS
            ? "userfaultfd is refused here: a seccomp profile or the kernel's configuration must "
              "allow the system call userfaultfd (flag UFFD_USER_MODE_ONLY suffices), or give "
              "access to /dev/userfaultfd (Linux 6.1)"
            : "userfaultfd lacks shared-memory faults with SIGBUS delivery: Linux 5.19 or later "
              "is needed";
    return Status::kNotSupp;
  }
  u.modes_ = UFFDIO_REGISTER_MODE_WP;
  if (kind == Kind::kImport || threads) {
    u.modes_ |= UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR;
  }
  return u;
}

// Whoever has passed something else must not have the calls made on it.
Userfault Userfault::of(Fd passed) {
  char path[48], target[32] = {};
  std::snprintf(path, sizeof path, "/proc/thread-self/fd/%d", passed.get());
  Userfault u;
  if (readlink(path, target, sizeof target - 1) > 0 &&
      std::strcmp(target, "anon_inode:[userfaultfd]") == 0) {
    u.fd_ = std::move(passed);
  }
  return u;
}

Status Userfault::add(void* addr, size_t len) {
  uffdio_register reg{};
  reg.range = {reinterpret_cast<uint64_t>(addr), len};
  reg.mode = modes_;
  if (ioctl(fd_.get(), UFFDIO_REGISTER, &reg) != 0) {
    return errno == ENOMEM ? Status::kNoMem : Status::kNotSupp;
  }
  return Status::kOk;
}

void Userfault::remove(void* addr, size_t len) {
  unprotect(addr, len);
  uffdio_range r{reinterpret_cast<uint64_t>(addr), len};
  ioctl(fd_.get(), UFFDIO_UNREGISTER, &r);
}

bool Userfault::watches(void* page) {
  // Of a page that is mapped this is refused with EEXIST, of one that nobody watches with ENOENT.
  uffdio_continue c{};
  c.range = {reinterpret_cast<uint64_t>(page), kPageSize};
  return ioctl(fd_.get(), UFFDIO_CONTINUE, &c) == 0 || errno == EEXIST;
}

bool Userfault::next_fault(Fault* fault) {
  uffd_msg message;
  ssize_t got;
  do {
    got = read(fd_.get(), &message, sizeof message);
  } while (got == sizeof message && message.event != UFFD_EVENT_PAGEFAULT);
  if (got != sizeof message) return false;
  const auto& f = message.arg.pagefault;
  fault->addr = reinterpret_cast<std::byte*>(f.address);
  fault->write = (f.flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP)) != 0;
  fault->thread = static_cast<pid_t>(f.feat.ptid);
  return true;
}

void Userfault::wake(void* addr, size_t len) {
  uffdio_range r{reinterpret_cast<uint64_t>(addr), len};
  ioctl(fd_.get(), UFFDIO_WAKE, &r);
}

// A thread that finds the page mapped has to find its content: before 2024 the kernel put nothing
// between the stores that filled the page and the entry that shows it. On x86 this costs nothing.
static void fill_before_mapping() { std::atomic_thread_fence(std::memory_order_release); }

[[gnu::hot]] bool Userfault::map(void* addr, size_t len, bool writable) {
  fill_before_mapping();
  // Without CONTINUE_MODE_WP there is a moment in which a store gets through. Where stores are
  // legal the caller keeps a twin to find them by.
  const bool protect_after = !writable && !features().continue_protected;
  auto start = reinterpret_cast<uint64_t>(addr);
  const uint64_t end = start + len;
  bool good = true;
  while (start < end && good) {
    uffdio_continue c{};
    c.range = {start, end - start};
    c.mode = writable || protect_after ? 0 : UFFDIO_CONTINUE_MODE_WP;
    if (ioctl(fd_.get(), UFFDIO_CONTINUE, &c) == 0) break;
    if (c.mapped > 0) {
      start += static_cast<uint64_t>(c.mapped);
      continue;
    }
    if (errno == EEXIST) {
      start += kPageSize;  // another view's fault, or an earlier one of ours, was first
    } else {
      good = errno == EAGAIN;
    }
  }
  if (protect_after) {
    fault_point("map_before_protect");
    protect(addr, len);
  }
  return good;
}

size_t Userfault::map_absent(void* addr, size_t len) {
  fill_before_mapping();
  uffdio_continue c{};
  c.range = {reinterpret_cast<uint64_t>(addr), len};
  while (ioctl(fd_.get(), UFFDIO_CONTINUE, &c) != 0 && errno == EAGAIN && c.mapped <= 0) {
  }
  return c.mapped > 0 ? static_cast<size_t>(c.mapped) : 0;
}

static bool write_protect(int fd, void* addr, size_t len, uint64_t mode, size_t page) {
  uffdio_writeprotect wp{};
  wp.range = {reinterpret_cast<uint64_t>(addr), len};
  wp.mode = mode;
  int failed;
  if (len > page && fault_point_fails("protect_one_mapping")) {
    failed = ENOENT;
  } else {
    do {
      failed = ioctl(fd, UFFDIO_WRITEPROTECT, &wp) != 0 ? errno : 0;
    } while (failed == EAGAIN);
  }
  if (failed != ENOENT || len <= page) return failed == 0;
  // Before Linux 6.4 a call takes one mapping, and does nothing at all where pages in flux are
  // covered in between; with any kernel, where a client has unmapped some of its own memory.
  bool all = true;
  for (size_t at = 0; at < len; at += page) {
    all = write_protect(fd, static_cast<std::byte*>(addr) + at, page, mode, page) && all;
  }
  return all;
}

bool Userfault::protect(void* addr, size_t len, size_t page) {
  return write_protect(fd_.get(), addr, len, UFFDIO_WRITEPROTECT_MODE_WP, page);
}

void Userfault::protect_elsewhere(uint64_t addr, size_t len) {
  constexpr int kMostTries = 1000;  // whoever passed the descriptor must not keep us at it
  uffdio_writeprotect wp{};
  wp.range = {addr, len};
  wp.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  for (int i = 0; i < kMostTries; ++i) {
    if (ioctl(fd_.get(), UFFDIO_WRITEPROTECT, &wp) == 0 || errno != EAGAIN) return;
  }
}

void Userfault::unprotect(void* addr, size_t len, size_t page) {
  write_protect(fd_.get(), addr, len, 0, page);
}

// Only an entry of the page table that is quite empty takes the poison, one that is write-protected
// does not. Nobody is woken before it is there: he would fault once more, for a thread to serve
// when he is gone.
void Userfault::poison(void* addr, size_t len) {
  write_protect(fd_.get(), addr, len, UFFDIO_WRITEPROTECT_MODE_DONTWAKE, kPageSize);
  PoisonArg p{};
  p.range = {reinterpret_cast<uint64_t>(addr), len};
  int failed;
  do {
    failed = ioctl(fd_.get(), kPoison, &p) != 0 ? errno : 0;
  } while (failed == EAGAIN);
  if (failed != 0) wake(addr, len);
}

void zap(void* addr, size_t len) {
  // A client may have locked its memory (mlock, mlockall): plain DONTNEED refuses that.
  if (madvise(addr, len, MADV_DONTNEED) != 0) madvise(addr, len, MADV_DONTNEED_LOCKED);
}

static ScanArg protecting_scan(uint64_t addr, uint64_t len) {
  ScanArg arg{};
  arg.size = sizeof arg;
  arg.flags = kScanWpMatching | kScanCheckWpAsync;
  arg.start = addr;
  arg.end = addr + len;
  return arg;
}

int scan_written(int pagemap, uint64_t addr, uint64_t len, WrittenRange* out, int max,
                 uint64_t* next) {
  ScanRegion regions[64];
  ScanArg arg = protecting_scan(addr, len);
  arg.vec = reinterpret_cast<uint64_t>(regions);
  arg.vec_len = static_cast<uint64_t>(std::min<int>(max, std::size(regions)));
  arg.category_mask = kPageIsWritten;
  arg.return_mask = kPageIsWritten;
  const int n = static_cast<int>(ioctl(pagemap, kPagemapScan, &arg));
  if (n < 0) return -errno;
  for (int i = 0; i < n; ++i) out[i] = {regions[i].start, regions[i].end};
  *next = arg.walk_end;
  return n;
}

bool forget_written(int pagemap, uint64_t addr, uint64_t len) {
  ScanArg arg = protecting_scan(addr, len);  // of any category, without a list
  return ioctl(pagemap, kPagemapScan, &arg) >= 0;
}

}  // namespace cmi::memory
