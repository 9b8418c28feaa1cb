// Making and knowing files of large pages.
#include "core/node/large_pages.hpp"

#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/cause.hpp"
#include "core/base/log.hpp"

namespace cmi::node {

namespace {
constexpr unsigned kCloseOnExec = 1, kHugetlb = 4, kOf2Mib = 21u << 26;  // MFD_*
constexpr decltype(statfs::f_type) kHugetlbfs = 0x958458f6;
}  // namespace

Result<Fd> make_large_file() {
  Fd fd(
      static_cast<int>(syscall(SYS_memfd_create, "cmi-large", kCloseOnExec | kHugetlb | kOf2Mib)));
  if (fd) return fd;
  const int why = errno;
  trace(kFacSeg, kWarn, "node: no file of large pages can be made: errno {}", why);
  if (why == EMFILE || why == ENFILE || why == ENOMEM) return Status::kNoMem;
  return because(Status::kNotSupp, "this kernel has no large pages of 2 MiB");
}

bool is_large_file(int fd) {
  struct statfs fs {};
  return ::fstatfs(fd, &fs) == 0 && fs.f_type == kHugetlbfs &&
         static_cast<uint64_t>(fs.f_bsize) == kLargePage;
}

}  // namespace cmi::node
