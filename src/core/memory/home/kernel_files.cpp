#include "core/memory/home/kernel_files.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/log.hpp"
#include "core/segment/mappings.hpp"

namespace cmi::memory {

Status KernelFiles::open() {
  hole.reset(static_cast<int>(syscall(SYS_memfd_create, "cmi-hole", 1u)));  // MFD_CLOEXEC
  if (!hole) return Status::kNoMem;
  pagemap.reset(::open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC));
  bool opened = static_cast<bool>(pagemap);
  maps = segment::open_maps();
  opened = opened && maps;
  if (opened) return Status::kOk;
  if (errno == EMFILE || errno == ENFILE) return Status::kNoMem;
  alert(kFacIni,
        "/proc/self/pagemap or maps cannot be opened (errno {}): /proc must be there, and who "
        "has changed its user since it was started calls prctl(PR_SET_DUMPABLE, 1) first",
        errno);
  return Status::kNotSupp;
}

}  // namespace cmi::memory
