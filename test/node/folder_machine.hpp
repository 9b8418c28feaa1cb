// What the tests of the default folder share: a machine of their own to make it on.
#pragma once

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/node/default_folder.hpp"

namespace cmi::test {

// In the place of /dev/shm, and of the user's own tmpfs.
struct FolderMachine {
  FolderMachine(const FolderMachine&) = delete;
  FolderMachine& operator=(const FolderMachine&) = delete;
  std::string top, shared, own;
  FolderMachine() {
    char name[] = "/dev/shm/cmi-default-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    top = name;
    shared = top + "/shm";
    own = top + "/own";
    REQUIRE(mkdir(shared.c_str(), 01777) == 0);
  }
  ~FolderMachine() {
    std::error_code ignored;
    std::filesystem::remove_all(top, ignored);
  }
  node::DefaultFolder folder(Nanos patience = kSecond) const {
    return node::DefaultFolder({shared, own, geteuid(), patience});
  }
  std::string usual() const { return shared + "/cmi-" + std::to_string(geteuid()); }
  std::string make() const {
    auto made = folder().make();
    REQUIRE(made);
    return *made;
  }
  static void take(const std::string& name) {
    REQUIRE(mkdir(name.c_str(), 0700) == 0);
    REQUIRE(chown(name.c_str(), 65534, 65534) == 0);
  }
};

}  // namespace cmi::test
