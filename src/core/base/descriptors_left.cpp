// See descriptors_left.hpp.
#include "core/base/descriptors_left.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <vector>

#include "core/base/fd.hpp"

namespace cmi {

// Failures of another kind say nothing of descriptors.
bool descriptors_left(int count) {
  std::vector<Fd> taken;
  taken.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    Fd fd(i == 0 ? ::eventfd(0, EFD_CLOEXEC) : ::fcntl(taken[0].get(), F_DUPFD_CLOEXEC, 0));
    if (!fd) return errno != EMFILE && errno != ENFILE;
    taken.push_back(std::move(fd));
  }
  return true;
}

}  // namespace cmi
