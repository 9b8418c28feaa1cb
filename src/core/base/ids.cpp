// Random words from the kernel.
#include "core/base/ids.hpp"

#include <sys/random.h>

#include <cerrno>
#include <utility>

namespace cmi {

uint64_t random_u64() {
  uint64_t v = 0;
  while (v == 0) {
    ssize_t n = getrandom(&v, sizeof v, 0);
    if (n != static_cast<ssize_t>(sizeof v)) v = 0;  // only EINTR can bring us here: again
  }
  return v;
}

uint64_t Secrets::next() {
  for (;;) {
    if (left_ == 0) {
      const ssize_t n = getrandom(drawn_.data(), sizeof drawn_, 0);
      if (n != static_cast<ssize_t>(sizeof drawn_)) continue;
      left_ = drawn_.size();
    }
    // Each is used once, and nobody finds it here later.
    if (const uint64_t v = std::exchange(drawn_[--left_], 0); v != 0) return v;
  }
}

}  // namespace cmi
