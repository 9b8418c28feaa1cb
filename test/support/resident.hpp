// Which memory of a file a process has in its page tables, counted from outside.
#pragma once

#include <doctest/doctest.h>
#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "core/base/ids.hpp"

namespace cmi::test {

// Pages of the file that is mapped at that address which any mapping of the process has.
inline uint64_t resident(pid_t process, uint64_t at) {
  std::ifstream maps("/proc/" + std::to_string(process) + "/smaps");
  std::map<std::string, uint64_t> pages;  // by device and inode
  std::string file, of_address;
  for (std::string line; std::getline(maps, line);) {
    uint64_t from = 0, to = 0, kib = 0;
    char rights[8], device[16];
    unsigned long long offset = 0, inode = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %7s %llx %15s %llu", &from, &to, rights, &offset, device,
                    &inode) == 6) {
      file = device + (" " + std::to_string(inode));
      if (at >= from && at < to) of_address = file;
    } else if (std::sscanf(line.c_str(), "Rss: %lu kB", &kib) == 1) {
      pages[file] += kib * 1024 / kPageSize;
    }
  }
  REQUIRE(!of_address.empty());
  return pages[of_address];
}

}  // namespace cmi::test
