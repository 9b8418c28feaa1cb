// Random words from the kernel.
#include "core/base/ids.hpp"

#include <sys/random.h>

#include <cerrno>

namespace cmi {

uint64_t random_u64() {
  uint64_t v = 0;
  while (v == 0) {
    ssize_t n = getrandom(&v, sizeof v, 0);
    if (n != static_cast<ssize_t>(sizeof v)) v = 0;  // only EINTR can bring us here: again
  }
  return v;
}

}  // namespace cmi
