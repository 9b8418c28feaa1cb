// The memory behind a view of another process, which can be read when that process is dead: the
// file stays as it was. In the test.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>

#include "core/base/fd.hpp"

namespace cmi::test {

class LeftMemory {
 public:
  LeftMemory() = default;
  // Of a process that lives; the test ends if there is no file behind the view at `at`.
  LeftMemory(pid_t pid, uint64_t at) {
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    for (std::string line; std::getline(maps, line);) {
      unsigned long begin = 0, end = 0, offset = 0;
      int path = 0;
      if (std::sscanf(line.c_str(), "%lx-%lx %*s %lx %*s %*s %n", &begin, &end, &offset, &path) <
              3 ||
          path == 0 || at < begin || at >= end) {
        continue;
      }
      file_.reset(::open(line.c_str() + path, O_RDONLY | O_CLOEXEC));
      start_ = static_cast<off_t>(offset + (at - begin));
    }
    if (!file_) throw std::runtime_error("the memory of a segment is no file");
  }

  uint64_t word(uint64_t offset) const {
    uint64_t value = 0;
    if (::pread(file_.get(), &value, sizeof value, start_ + static_cast<off_t>(offset)) !=
        static_cast<ssize_t>(sizeof value)) {
      throw std::runtime_error("the memory of a segment is gone");
    }
    return value;
  }

 private:
  Fd file_;
  off_t start_ = 0;  // of the view, in the file
};

}  // namespace cmi::test
