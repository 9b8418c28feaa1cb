// See processes.hpp.
#include "processes.hpp"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>

namespace cmi::adm {

namespace {

enum class Maps { kYes, kNo, kUnknown };

std::string file_of(pid_t pid, const char* name) { return fmt::format("/proc/{}/{}", pid, name); }

// kUnknown: what it maps is not ours to see, or it is just ending.
Maps maps(pid_t pid, const struct stat& file) {
  std::ifstream lines(file_of(pid, "maps"));
  const std::string device =
      fmt::format("{:02x}:{:02x} {} ", major(file.st_dev), minor(file.st_dev), file.st_ino);
  bool any = false;
  for (std::string line; std::getline(lines, line); any = true) {
    if (line.find(device) != line.npos) return Maps::kYes;
  }
  struct stat there;
  return !any && stat(file_of(pid, "stat").c_str(), &there) == 0 ? Maps::kUnknown : Maps::kNo;
}

// What everybody may read in its status.
struct Shown {
  pid_t number = 0;  // the last one of NSpid: in the innermost namespace
  uid_t user = ~0u;  // the effective one
};
Shown shown_of(pid_t pid) {
  Shown shown;
  std::ifstream lines(file_of(pid, "status"));
  for (std::string line; std::getline(lines, line);) {
    unsigned real = 0, effective = 0;
    if (line.starts_with("NSpid:")) {
      shown.number = std::atoi(line.c_str() + line.find_last_of(" \t") + 1);
    } else if (std::sscanf(line.c_str(), "Uid: %u %u", &real, &effective) == 2) {
      shown.user = effective;
    }
  }
  return shown;
}

pid_t one_of_another_namespace(const struct stat& file, pid_t own_pid) {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir("/proc"), closedir);
  while (dirent* e = dir != nullptr ? readdir(dir.get()) : nullptr) {
    const pid_t pid = std::atoi(e->d_name);
    if (pid > 0 && pid != own_pid && shown_of(pid).number == own_pid &&
        maps(pid, file) == Maps::kYes) {
      return pid;
    }
  }
  return 0;
}

// The program's name stands in parentheses, and may hold some itself.
void look_at(Seen* seen) {
  std::ifstream file(file_of(seen->pid, "stat"));
  std::string line;
  std::getline(file, line);
  const size_t begin = line.find('('), end = line.rfind(')');
  if (begin == line.npos || end == line.npos || end + 2 >= line.size() || end <= begin) return;
  seen->program = line.substr(begin + 1, end - begin - 1);
  seen->state = line[end + 2];
}

}  // namespace

Seen process_that_maps(int registry, pid_t own_pid) {
  Seen seen;
  struct stat file;
  if (own_pid <= 0 || fstat(registry, &file) != 0) return seen;
  const Maps own = maps(own_pid, file);
  seen.pid = own == Maps::kYes ? own_pid : one_of_another_namespace(file, own_pid);
  // The first process of a container has the number of ours, which not everybody may look into.
  const Shown shown = shown_of(own_pid);
  const bool may_be = shown.number == own_pid && shown.user == file.st_uid;
  if (seen.pid == 0 && own == Maps::kUnknown && may_be) seen.pid = own_pid;
  if (seen.pid != 0) look_at(&seen);
  return seen;
}

}  // namespace cmi::adm
