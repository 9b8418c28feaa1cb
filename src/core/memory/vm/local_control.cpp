// The shared file of marks: made and checked.
#include "core/memory/vm/local_control.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cmi::memory {

namespace {
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
}  // namespace

Result<LocalControl> LocalControl::map(Fd file, uint32_t pages) {
  const size_t size = size_for(pages);
  void* const at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return Status::kNoMem;
  madvise(at, size, MADV_DONTFORK);
  return LocalControl(std::move(file), Mapping(at, size), pages);
}

Result<LocalControl> LocalControl::make(uint32_t pages) {
  Fd file(memfd_create("cmi-local", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ftruncate(file.get(), static_cast<off_t>(size_for(pages))) != 0 ||
      posix_fallocate(file.get(), 0, static_cast<off_t>(size_for(pages))) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    return Status::kNoMem;
  }
  return map(std::move(file), pages);
}

Result<LocalControl> LocalControl::open(Fd file, uint32_t pages) {
  struct stat st {};
  const int seals = file ? fcntl(file.get(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(file.get(), &st) != 0 ||
      st.st_size != static_cast<off_t>(size_for(pages))) {
    return Status::kInval;
  }
  return map(std::move(file), pages);
}

}  // namespace cmi::memory
