// See lock_memory.hpp.
#include "core/memory/vm/lock_memory.hpp"

#include <cmi.h>
#include <sys/mman.h>

#include <cerrno>

#include "core/base/log.hpp"

namespace cmi::memory {

namespace {
// Large pages never leave memory: the kernel would count them against the limit for nothing.
bool to_lock(int32_t flags) {
  return (flags & (CMI_SEG_LOCK | CMI_SEG_LARGE_PAGES)) == CMI_SEG_LOCK;
}

Status refused(size_t len) {
  const int why = errno;
  trace(kFacSeg, kError, "CMI_SEG_LOCK: {} bytes cannot be locked: errno {}; see ulimit -l", len,
        why);
  return why == EPERM ? Status::kPerm : Status::kNoMem;
}
}  // namespace

Status lock_memory(int32_t flags, void* service, size_t len) {
  if (!to_lock(flags) || (flags & CMI_SEG_NORESERVE) != 0 || len == 0) return Status::kOk;
  return mlock(service, len) == 0 ? Status::kOk : refused(len);
}

Status lock_when_touched(int32_t flags, void* view, size_t len) {
  if (!to_lock(flags) || (flags & CMI_SEG_NORESERVE) == 0) return Status::kOk;
  return mlock2(view, len, MLOCK_ONFAULT) == 0 ? Status::kOk : refused(len);
}

}  // namespace cmi::memory
