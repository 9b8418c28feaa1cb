// What a cluster's processes left on the machine outside of their runtime folder: objects in
// /dev/shm that bear the number of one of them, and descendants that still run. Other tests run at
// the same time, so nothing else is looked at. Single-threaded.
#pragma once

#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.hpp"

namespace cmi::test {

class Litter {
 public:
  // From now on descendants whose parents have ended are this process's children.
  Litter() {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    children_before_ = running_children();
    shared_before_ = shared_names();
  }

  // Names in /dev/shm that were not there before, are ours, and have one of the numbers in them.
  std::vector<std::string> shared(const std::set<pid_t>& numbers) const {
    std::vector<std::string> left;
    for (const std::string& name : shared_names()) {
      struct stat file {};
      if (shared_before_.contains(name) || name.starts_with("cmi-test-") ||
          ::lstat((kShared + name).c_str(), &file) != 0 || file.st_uid != ::geteuid()) {
        continue;
      }
      for (size_t at = 0; at < name.size();) {
        if (std::isdigit(static_cast<unsigned char>(name[at])) == 0) {
          ++at;
          continue;
        }
        char* end = nullptr;
        const auto number = static_cast<pid_t>(std::strtoul(name.c_str() + at, &end, 10));
        at = static_cast<size_t>(end - name.c_str());
        if (!numbers.contains(number)) continue;
        left.push_back(kShared + name);
        break;
      }
    }
    return left;
  }

  // Processes that are this one's children and were not before, do not belong to the caller, and
  // have not ended after `patience`.
  std::set<pid_t> running(const std::set<pid_t>& known, Nanos patience = 5 * kSecond) const {
    const Deadline soon = Deadline::in(patience);
    for (;;) {
      std::set<pid_t> left;
      for (pid_t child : running_children()) {
        if (!known.contains(child) && !children_before_.contains(child)) left.insert(child);
      }
      if (left.empty() || soon.passed()) return left;
      ::usleep(1000);
    }
  }

 private:
  static inline const std::string kShared = "/dev/shm/";

  static std::set<std::string> shared_names() {
    std::set<std::string> names;
    std::error_code error;
    for (std::filesystem::directory_iterator at(kShared, error), end; !error && at != end;
         at.increment(error)) {
      names.insert(at->path().filename().string());
    }
    return names;
  }
  // Not those that have ended and nobody has waited for.
  static std::set<pid_t> running_children() {
    std::set<pid_t> children;
    std::error_code error;
    for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end;
         at.increment(error)) {
      const std::string number = at->path().filename().string();
      if (number.find_first_not_of("0123456789") != std::string::npos) continue;
      std::ifstream file(at->path() / "stat");
      std::string line;
      std::getline(file, line);
      const size_t name_end = line.rfind(')');  // of the program's name, which may hold anything
      if (name_end == std::string::npos || name_end + 4 >= line.size()) continue;
      const char state = line[name_end + 2];
      const long parent = std::strtol(line.c_str() + name_end + 4, nullptr, 10);
      if (parent == ::getpid() && state != 'Z' && state != 'X') {
        children.insert(static_cast<pid_t>(std::stol(number)));
      }
    }
    return children;
  }

  std::set<pid_t> children_before_;
  std::set<std::string> shared_before_;
};

}  // namespace cmi::test
