// Reading the process's maps and smaps in /proc.
#include "core/segment/mappings.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "core/base/fd.hpp"

namespace cmi::segment {

namespace {

struct Area {  // the head of an entry
  uint64_t start = 0, end = 0, offset = 0;
  char access[5] = {};
  FileId file;
};

bool parse_head(const char* line, Area* area) {
  unsigned major = 0, minor = 0;
  uint64_t inode = 0;
  Area a;
  if (std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %x:%x %" SCNu64, &a.start, &a.end,
                  a.access, &a.offset, &major, &minor, &inode) != 7) {
    return false;
  }
  a.file = {makedev(major, minor), static_cast<ino_t>(inode)};
  *area = a;
  return true;
}

// Calls `each(line)` for every line of the file until it returns false. False: it cannot be read.
template <class Each>
bool for_each_line(int file, Each each) {
  std::string text;  // not yet looked at
  char buf[16384];
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(file, buf, sizeof buf, at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n == 0;
    at += n;
    text.append(buf, static_cast<size_t>(n));
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      text[end] = '\0';
      if (!each(text.c_str() + begin)) return true;
    }
    text.erase(0, begin);
  }
}

bool has_flag(const char* flags, const char* flag) { return std::strstr(flags, flag) != nullptr; }

Status judge(const Area& a, const char* flags, bool* locked) {
  // Stacks that grow, pages without a page structure, device memory, huge pages, and memory that
  // another userfaultfd watches.
  for (const char* other : {" gd", " pf", " io", " ht", " um", " uw", " ui", " ss"}) {
    if (has_flag(flags, other)) return Status::kNotSupp;
  }
  if (std::strncmp(a.access, "rw", 2) != 0) return Status::kPerm;
  if (a.access[2] == 'x' || a.access[3] != 'p' || a.file.inode != 0) return Status::kNotSupp;
  *locked = *locked || has_flag(flags, " lo");
  return Status::kOk;
}

}  // namespace

// What the first thread's folder showed when it was opened stays readable. That of another thread
// fails with that thread's end.
Fd open_maps() {
  Fd maps(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  char byte = 0;
  if (maps && ::pread(maps.get(), &byte, 1, 0) == 1) return maps;
  return Fd(::open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC));
}

bool maps_readable(const Fd& maps) {
  char byte = 0;
  return ::pread(maps.get(), &byte, 1, 0) == 1;
}

Status own_memory(const void* addr, size_t len, bool* locked) {
  const auto begin = reinterpret_cast<uint64_t>(addr);
  const uint64_t end = begin + len;
  const auto here = reinterpret_cast<uint64_t>(__builtin_frame_address(0));
  if (here >= begin && here < end) return Status::kInval;
  *locked = false;
  uint64_t at = begin;  // up to here all is well
  Area area;
  Status status = Status::kOk;
  // The line with the flags is the last of an entry.
  const Fd smaps(::open("/proc/thread-self/smaps", O_RDONLY | O_CLOEXEC));
  const bool read = smaps && for_each_line(smaps.get(), [&](const char* line) {
                      constexpr const char* kFlags = "VmFlags:";
                      if (std::strncmp(line, kFlags, std::strlen(kFlags)) != 0) {
                        parse_head(line, &area);
                        return true;
                      }
                      if (area.end <= at) return true;
                      if (area.start > at) return false;  // a hole
                      status = judge(area, line, locked);
                      at = area.end;
                      return ok(status) && at < end;
                    });
  if (!read) return Status::kNotSupp;
  if (!ok(status)) return status;
  return at >= end ? Status::kOk : Status::kInval;
}

FileId file_id(int fd) {
  struct stat st;
  return fstat(fd, &st) == 0 ? FileId{st.st_dev, st.st_ino} : FileId{};
}

Result<std::vector<Part>> still_mapped(int maps, const void* addr, size_t len,
                                       const std::vector<FileId>& files) {
  const auto begin = reinterpret_cast<uint64_t>(addr);
  const uint64_t end = begin + len;
  std::vector<Part> parts;
  const bool read = for_each_line(maps, [&](const char* line) {
    Area a;
    if (!parse_head(line, &a) || a.end <= begin) return true;
    if (a.start >= end) return false;
    const uint64_t from = std::max(a.start, begin), to = std::min(a.end, end);
    const bool ours = std::find(files.begin(), files.end(), a.file) != files.end() &&
                      a.offset + (from - a.start) == from - begin;
    if (!ours) return true;
    if (!parts.empty() && parts.back().end == from - begin) {
      parts.back().end = to - begin;
    } else {
      parts.push_back({from - begin, to - begin});
    }
    return true;
  });
  if (!read) return Status::kNoMem;
  return parts;
}

}  // namespace cmi::segment
