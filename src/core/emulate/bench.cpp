// Memory to execute one instruction in: the same page twice, once executable and once writable, so
// that no mapping is both.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/fd.hpp"
#include "core/base/lock.hpp"
#include "core/emulate/emulate.hpp"

namespace cmi::emulate {

bool Bench::open() {
  Fd file(static_cast<int>(syscall(SYS_memfd_create, "cmi-through", 1u)));  // MFD_CLOEXEC
  if (!file || ftruncate(file.get(), kPage) != 0) return false;
  void* at = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return false;
  Mapping all(at, kSize);
  if (mmap(at, kPage, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, file.get(), 0) == MAP_FAILED) {
    return false;
  }
  void* writable = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (writable == MAP_FAILED) return false;
  madvise(at, kSize, MADV_DONTFORK);
  madvise(writable, kPage, MADV_DONTFORK);
  all.release();
  code_ = static_cast<std::byte*>(at);
  writable_ = static_cast<std::byte*>(writable);
  return true;
}

Bench::~Bench() {
  if (code_ == nullptr) return;
  munmap(code_, kSize);
  munmap(writable_, kPage);
}

Bench* Benches::take(Deadline deadline) {
  for (Backoff backoff;; backoff.pause()) {
    for (Slot& s : slots_) {
      if (s.taken.load(std::memory_order_relaxed)) continue;
      if (s.taken.exchange(true, std::memory_order_acquire)) continue;  // pairs with give()
      if (s.bench.is_open() || s.bench.open()) return &s.bench;
      s.taken.store(false, std::memory_order_release);
      return nullptr;
    }
    if (deadline.passed()) return nullptr;
  }
}

void Benches::give(Bench* bench) {
  for (Slot& s : slots_) {
    if (&s.bench == bench) s.taken.store(false, std::memory_order_release);
  }
}

}  // namespace cmi::emulate
