// Counting the threads of this process.
#include "core/base/single_threaded.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <memory>

#include "core/base/library_thread.hpp"
#include "core/base/mutation.hpp"

namespace cmi {

namespace {
constexpr int kTries = 8;
constexpr uint32_t kMostUnlooked = 63;

// 0: not known.
uint64_t threads(int tasks) {
  // Not fstat(), which takes the way of names in glibc.
#ifdef SYS_fstat
  struct stat st;
  if (::syscall(SYS_fstat, tasks, &st) != 0) return 0;
#else
  struct stat st;
  if (::fstat(tasks, &st) != 0) return 0;
#endif
  return st.st_nlink > 2 ? st.st_nlink - 2 : 0;
}

uint64_t entries() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/task"), &::closedir);
  uint64_t n = 0;
  while (const dirent* e = folder != nullptr ? ::readdir(folder.get()) : nullptr) {
    n += e->d_name[0] != '.' ? 1 : 0;
  }
  return n;
}
}  // namespace

void SingleThreaded::open() {
  Fd tasks(::open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Not every kernel that looks like Linux counts there. Threads may come and go meanwhile.
  for (int i = 0; tasks && !tasks_ && i < kTries; ++i) {
    const uint64_t n = threads(tasks.get());
    if (n != 0 && n == entries()) tasks_ = std::move(tasks);
  }
}

[[gnu::hot]] bool SingleThreaded::now() {
  // For one of ours the only other thread may be storing meanwhile: fault threads are here while
  // the client runs.
  if (!tasks_ || t_library_thread) return false;
  if (mutated("mutate_taken_for_alone")) return true;
  if (const uint32_t left = left_.load(std::memory_order_relaxed); left > 0) {
    left_.store(left - 1, std::memory_order_relaxed);
    return false;
  }
  const bool alone = look();
  const uint32_t more =
      alone ? 0 : std::min(2 * last_.load(std::memory_order_relaxed) + 1, kMostUnlooked);
  last_.store(more, std::memory_order_relaxed);
  left_.store(more, std::memory_order_relaxed);
  return alone;
}

[[gnu::hot]] bool SingleThreaded::look() const {
  // Each of ours counts itself while it is there, so it is among those that the kernel counts
  // between two looks that find the same.
  const uint64_t ours = g_library_threads.load(std::memory_order_seq_cst);
  const uint64_t all = threads(tasks_.get());
  return all == (ours & UINT32_MAX) + 1 &&
         ours == g_library_threads.load(std::memory_order_seq_cst);
}

}  // namespace cmi
