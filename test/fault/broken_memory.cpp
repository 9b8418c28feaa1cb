// How a page is broken: by the kernel, or by poisoned entries in the page tables.
#include "fault/broken_memory.hpp"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/fd.hpp"
#include "core/base/ids.hpp"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef MADV_HWPOISON
#define MADV_HWPOISON 100
#endif

namespace cmi::test {

namespace {

constexpr uint64_t kPoisonFeature = 1 << 14;  // 6.6; not in the headers of Debian 12
struct PoisonArg {
  uffdio_range range;
  uint64_t mode;
  int64_t updated;
};
constexpr unsigned long kPoison = _IOWR(UFFDIO, 0x08, PoisonArg);

bool by_the_kernel() {
  const char* text = std::getenv("CMI_TEST_HWPOISON");
  return text != nullptr && std::string(text) == "1";
}

int open_poisoner() {
  const int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = kPoisonFeature;
  if (fd >= 0 && ioctl(fd, UFFDIO_API, &api) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

// In the page tables of this process.
bool poison_at(uint64_t page) {
  // Stays open: it holds what it has poisoned.
  static const int poisoner = open_poisoner();
  uffdio_register reg{};
  reg.range = {page, kPageSize};
  reg.mode = UFFDIO_REGISTER_MODE_WP;
  PoisonArg poison{};
  poison.range = reg.range;
  return ioctl(poisoner, UFFDIO_REGISTER, &reg) == 0 &&
         madvise(reinterpret_cast<void*>(page), kPageSize, MADV_DONTNEED) == 0 &&
         ioctl(poisoner, kPoison, &poison) == 0;
}

struct Mapped {
  uint64_t begin, end, offset;
  std::string file;  // device and inode
};
std::vector<Mapped> mappings() {
  std::vector<Mapped> all;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    Mapped m;
    std::string rights, device, inode;
    char dash;
    std::istringstream in(line);
    in >> std::hex >> m.begin >> dash >> m.end >> rights >> m.offset >> device >> inode;
    m.file = device + ' ' + inode;
    all.push_back(m);
  }
  return all;
}

// Where else that byte of the same file is mapped.
std::vector<uint64_t> mapped_too(uint64_t at) {
  std::vector<uint64_t> where;
  const std::vector<Mapped> all = mappings();
  for (const Mapped& own : all) {
    if (at < own.begin || at >= own.end) continue;
    const uint64_t offset = own.offset + (at - own.begin);
    for (const Mapped& m : all) {
      if (m.file != own.file || offset < m.offset || offset >= m.offset + (m.end - m.begin)) {
        continue;
      }
      const uint64_t there = m.begin + (offset - m.offset);
      if (there != at) where.push_back(there);
    }
  }
  return where;
}

void* pointer(uint64_t at) { return reinterpret_cast<void*>(at); }

}  // namespace

const char* why_memory_cannot_break() {
  if (by_the_kernel()) return nullptr;
  return Fd(open_poisoner()) ? nullptr : "this kernel cannot poison a page (Linux 6.6 can)";
}

bool break_page(uint64_t view, uint64_t page) {
  const uint64_t at = view + page * kPageSize;
  if (by_the_kernel()) return madvise(pointer(at), kPageSize, MADV_HWPOISON) == 0;
  const std::vector<uint64_t> library = mapped_too(at);
  return !library.empty() && std::all_of(library.begin(), library.end(), poison_at);
}

// The views are watched by the library; beside them it has a mapping that it asks for memory by.
bool break_mapped_page(uint64_t view, uint64_t page) {
  if (by_the_kernel()) return true;
  const uint64_t at = view + page * kPageSize;
  if (madvise(pointer(at), kPageSize, MADV_REMOVE) != 0) return false;
  const std::vector<uint64_t> library = mapped_too(at);
  return std::count_if(library.begin(), library.end(), poison_at) == 1;
}

bool break_view(uint64_t view, uint64_t page) {
  if (by_the_kernel()) return true;
  // The view may be watched by the library already: what lies beyond a file's end is SIGBUS, too.
  const Fd nothing(static_cast<int>(syscall(SYS_memfd_create, "broken", 1u)));
  return mmap(pointer(view + page * kPageSize), kPageSize, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_FIXED, nothing.get(), 0) != MAP_FAILED;
}

bool mend_page(uint64_t view, uint64_t page) {
  if (by_the_kernel()) return false;
  bool mended = false;
  for (uint64_t there : mapped_too(view)) {
    mended = madvise(pointer(there + page * kPageSize), kPageSize, MADV_DONTNEED) == 0;
  }
  return mended;
}

}  // namespace cmi::test
