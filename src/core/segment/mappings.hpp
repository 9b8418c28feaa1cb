// What the kernel says of this process's mappings: whether a range is memory that a client may hand
// over, and which parts of one are still mapped from a certain file.
// Any thread, but not the fault handler: reads /proc and allocates.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/fd.hpp"
#include "core/base/status.hpp"

namespace cmi::segment {

// kOk: all of [addr, addr+len) is private anonymous memory that may be read and written, and no
// stack that grows. kInval: some of it is not mapped, or the calling thread's stack lies in it.
// kPerm: some may not be read and written. kNotSupp: some is shared, of a file, executable, of huge
// pages, or watched by somebody's userfaultfd. *locked: some is locked into memory.
Status own_memory(const void* addr, size_t len, bool* locked);

// The process's mappings, open; see still_mapped(). Not readable any more: to be opened again.
Fd open_maps();
bool maps_readable(const Fd& maps);

struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileId&) const = default;
};
FileId file_id(int fd);

// The parts of [addr, addr+len) that are mapped from one of these files, each at its own place:
// offset in the file = offset in the range. In offsets from addr, ascending. `maps`:
// as of open_maps(); nobody else reads from it meanwhile, since then lines might be torn.
struct Part {
  size_t begin, end;
};
Result<std::vector<Part>> still_mapped(int maps, const void* addr, size_t len,
                                       const std::vector<FileId>& files);

}  // namespace cmi::segment
