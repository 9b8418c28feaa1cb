// Sleeping until a word of shared memory changes: a futex at its lower half, known by the file and
// the place in it, so that all processes of the machine meet that map it, wherever. Kernel and
// library only look at the word: it may lie in memory that is protected or not there. Any thread.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <climits>
#include <cstdint>

#include "core/base/clock.hpp"

namespace cmi {

static_assert(std::endian::native == std::endian::little);

// For `span` at most, and not at all where another value stands there. False: the kernel cannot
// load the word.
inline bool sleep_at_word(const uint64_t* at, uint64_t seen, Nanos span) {
  const timespec ts{span / kSecond, span % kSecond};
  return syscall(SYS_futex, at, FUTEX_WAIT, static_cast<uint32_t>(seen), &ts, nullptr, 0) == 0 ||
         errno != EFAULT;
}

inline void wake_at_word(const uint64_t* at, bool all) {
  syscall(SYS_futex, at, FUTEX_WAKE, all ? INT_MAX : 1, nullptr, nullptr, 0);
}

}  // namespace cmi
