// System calls of userfaultfd, and the handler.
#include "trap.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

// Newer than the kernel headers of Debian 12.
#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
#ifndef UFFDIO_CONTINUE_MODE_WP
#define UFFDIO_CONTINUE_MODE_WP 2
#endif

namespace bench {

namespace {
Trap* g_installed = nullptr;  // whose SIGBUS is; by the thread that installs

std::byte* map_file(int file, size_t size) {
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}
}  // namespace

Trap::Trap(size_t pages, size_t window, bool twins)
    : pages_(pages), window_(window), twins_(twins ? pages * kPage : 0), mapped_(pages) {
  const size_t size = pages * kPage;
  fd_ = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
  file_ = memfd_create("cmi-bench-trap", MFD_CLOEXEC);
  const bool open = fd_ >= 0 && file_ >= 0 && ftruncate(file_, static_cast<off_t>(size)) == 0;
  if (open) {
    service_ = map_file(file_, size);
    view_ = map_file(file_, size);
  }
  bool good = service_ != nullptr && view_ != nullptr;
  if (good) {
    std::memset(service_, 1, size);
    uffdio_api api{};
    api.api = UFFD_API;
    api.features = UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MINOR_SHMEM |
                   UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_SIGBUS;
    uffdio_register watch{};
    watch.range = {reinterpret_cast<uint64_t>(view_), size};
    watch.mode =
        UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_MINOR | UFFDIO_REGISTER_MODE_WP;
    uffdio_continue first{};
    first.range = {reinterpret_cast<uint64_t>(view_), kPage};
    first.mode = UFFDIO_CONTINUE_MODE_WP;
    good = ioctl(fd_, UFFDIO_API, &api) == 0 && ioctl(fd_, UFFDIO_REGISTER, &watch) == 0 &&
           ioctl(fd_, UFFDIO_CONTINUE, &first) == 0;
  }
  if (!good) {
    remove();
    fail("no floor: userfaultfd has no faults of shared memory by SIGBUS here");
  }
  mapped_[0] = true;
}

Trap::~Trap() {
  restore();
  remove();
}

void Trap::remove() noexcept {
  if (view_ != nullptr) munmap(view_, pages_ * kPage);
  if (service_ != nullptr) munmap(service_, pages_ * kPage);
  if (fd_ >= 0) close(fd_);
  if (file_ >= 0) close(file_);
}

void Trap::install() {
  struct sigaction ours {};
  ours.sa_sigaction = on_sigbus;
  ours.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&ours.sa_mask);
  g_installed = this;
  must(sigaction(SIGBUS, &ours, &before_) == 0, "SIGBUS cannot be handled");
  installed_ = true;
}

void Trap::restore() {
  if (!installed_) return;
  installed_ = false;
  sigaction(SIGBUS, &before_, nullptr);
  g_installed = nullptr;
}

namespace {
// What the kernel says of the access: of the page fault's error code, or of the syndrome that lies
// among the records behind the registers.
bool was_store(const ucontext_t& uc) {
#if defined(__x86_64__)
  return (uc.uc_mcontext.gregs[REG_ERR] & 2) != 0;
#elif defined(__aarch64__)
  for (const unsigned char* at = uc.uc_mcontext.__reserved;;) {
    uint32_t head[2];
    std::memcpy(head, at, sizeof head);
    if (head[0] == 0 || head[1] < sizeof head) return false;
    uint64_t syndrome;
    std::memcpy(&syndrome, at + sizeof head, sizeof syndrome);
    if (head[0] == 0x45535201) return (syndrome & 0x140) == 0x40;
    at += head[1];
  }
#endif
}
}  // namespace

void Trap::on_sigbus(int, siginfo_t* info, void* context) {
  const int saved = errno;
  const auto* uc = static_cast<const ucontext_t*>(context);
  Trap* trap = g_installed;
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  if (trap == nullptr || at < trap->view_ || at >= trap->view_ + trap->pages_ * kPage) {
    signal(SIGBUS, SIG_DFL);  // happens again, and ends us
    return;
  }
  try {
    trap->serve(static_cast<size_t>(at - trap->view_) / kPage, was_store(*uc));
  } catch (const std::exception& e) {  // no way back to who faulted
    std::fprintf(stderr, "cmi_bench: in the handler of a fault: %s\n", e.what());
    _exit(1);
  }
  errno = saved;
}

void Trap::serve(size_t index, bool store) {
  const uint64_t at = reinterpret_cast<uint64_t>(page(index));
  const bool absent = !mapped_[index];
  must(!store || !twins_.empty(), "a store to a view whose pages have no twins");
  size_t count = 1;  // memcpy() loads the last page first
  while (count < std::min(window_, pages_ - index) && !mapped_[index + count]) ++count;
  const auto map = [&] {
    uffdio_continue arg{};
    arg.range = {at, count * kPage};
    arg.mode = store ? 0 : UFFDIO_CONTINUE_MODE_WP;
    must(ioctl(fd_, UFFDIO_CONTINUE, &arg) == 0, "UFFDIO_CONTINUE failed");
    for (size_t i = index; i < index + count; ++i) mapped_[i] = true;
  };
  const auto prefetch = [&] {
    if (window_ > 1) return;  // more than a cache takes
    for (size_t line = 0; line < kPage; line += 64) {
      __builtin_prefetch(content(index) + line, 1);
      if (store) __builtin_prefetch(twins_.data() + index * kPage + line, 1);
    }
  };
  // Only this thread comes to the page, and not before it returns from here.
  const auto meanwhile = [&] {
    prefetch();
    map();
  };
  if (absent && fetch_) fetch_(index, std::ref(meanwhile));
  if (absent && !fetch_) map();
  if (!absent && mark_) {
    prefetch();
    mark_(index);
  }
  if (store) {
    std::memcpy(twins_.data() + index * kPage, content(index), absent ? count * kPage : kPage);
  }
  if (!absent) {
    uffdio_writeprotect allow{};
    allow.range = {at, kPage};
    must(store && ioctl(fd_, UFFDIO_WRITEPROTECT, &allow) == 0, "UFFDIO_WRITEPROTECT failed");
  }
}

void Trap::zap(size_t first, size_t count) {
  for (size_t i = first; i < first + count; ++i) mapped_[i] = false;
  must(madvise(page(first), count * kPage, MADV_DONTNEED) == 0, "madvise failed");
}

void Trap::protect(size_t index) {
  uffdio_writeprotect protect{};
  protect.range = {reinterpret_cast<uint64_t>(page(index)), kPage};
  protect.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  must(ioctl(fd_, UFFDIO_WRITEPROTECT, &protect) == 0, "UFFDIO_WRITEPROTECT failed");
}

size_t Trap::compare(size_t index) const {
  const auto* now_there = reinterpret_cast<const uint64_t*>(content(index));
  const auto* before = reinterpret_cast<const uint64_t*>(twins_.data() + index * kPage);
  size_t differ = 0;
  for (size_t i = 0; i < kPage / 8; ++i) differ += now_there[i] != before[i];
  return differ;
}

Tracked::Tracked(size_t pages) : size_(pages * kPage) {
  fd_ = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
  file_ = memfd_create("cmi-bench-tracked", MFD_CLOEXEC);
  if (fd_ < 0 || file_ < 0 || ftruncate(file_, static_cast<off_t>(size_)) != 0) return;
  at_ = map_file(file_, size_);
  if (at_ == nullptr) return;
  std::memset(at_, 1, size_);
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_WP_HUGETLBFS_SHMEM | UFFD_FEATURE_WP_ASYNC;
  uffdio_register watch{};
  watch.range = {reinterpret_cast<uint64_t>(at_), size_};
  watch.mode = UFFDIO_REGISTER_MODE_WP;
  good_ = ioctl(fd_, UFFDIO_API, &api) == 0 && ioctl(fd_, UFFDIO_REGISTER, &watch) == 0;
}

Tracked::~Tracked() {
  if (at_ != nullptr) munmap(at_, size_);
  if (fd_ >= 0) close(fd_);
  if (file_ >= 0) close(file_);
}

void Tracked::begin() {
  uffdio_writeprotect protect{};
  protect.range = {reinterpret_cast<uint64_t>(at_), size_};
  protect.mode = UFFDIO_WRITEPROTECT_MODE_WP;
  must(ioctl(fd_, UFFDIO_WRITEPROTECT, &protect) == 0, "UFFDIO_WRITEPROTECT failed");
}

Masked::Masked() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}

Masked::~Masked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace bench
