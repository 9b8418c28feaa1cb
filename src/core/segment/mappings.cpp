// Reading /proc/self/maps and smaps.
#include "core/segment/mappings.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

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
bool for_each_line(const char* path, Each each) {
  struct Close {
    void operator()(FILE* f) const { std::fclose(f); }
  };
  const std::unique_ptr<FILE, Close> file(std::fopen(path, "re"));
  if (file == nullptr) return false;
  char* line = nullptr;
  size_t room = 0;
  errno = 0;
  while (::getline(&line, &room, file.get()) > 0 && each(line)) {
  }
  std::free(line);
  return std::ferror(file.get()) == 0;
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
  const bool read = for_each_line("/proc/self/smaps", [&](const char* line) {
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

Result<std::vector<Part>> still_mapped(const void* addr, size_t len,
                                       const std::vector<FileId>& files) {
  const auto begin = reinterpret_cast<uint64_t>(addr);
  const uint64_t end = begin + len;
  std::vector<Part> parts;
  const bool read = for_each_line("/proc/self/maps", [&](const char* line) {
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
