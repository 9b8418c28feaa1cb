#include "core/node/default_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/ids.hpp"
#include "core/node/folder.hpp"
#include "core/node/lock_file.hpp"

namespace cmi::node {

namespace {
constexpr int kTries = 100;
constexpr uint32_t kLargestNumber = 999'999'999;

using Dir = std::unique_ptr<DIR, int (*)(DIR*)>;
Dir open_dir(const std::string& path) { return {opendir(path.c_str()), closedir}; }

// Of a folder's name behind its stem: nothing is 0, "-N" is N.
std::optional<uint32_t> number_of(std::string_view rest) {
  if (rest.empty()) return 0;
  if (rest.size() < 2 || rest[0] != '-' || rest[1] == '0') return std::nullopt;
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), number);
  if (error != std::errc{} || end != rest.data() + rest.size()) return std::nullopt;
  return number;
}

bool folder_of(const std::string& path, uid_t user) {
  struct stat st {};
  return lstat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == user;
}

// Others may put names of the user's into /dev/shm (a hard link to a file of his), and he himself
// by accident: what no node can be in is none of the folders.
bool usable_by(const std::string& path, uid_t user) {
  struct stat st {};
  return lstat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == user &&
         (st.st_mode & 077) == 0;
}

// A context of any node in it holds its life lock.
bool has_living_node(const std::string& folder) {
  const Dir dir = open_dir(folder);
  while (const dirent* e = dir ? readdir(dir.get()) : nullptr) {
    if (e->d_name[0] == '.') continue;
    const std::string registry = folder + "/" + e->d_name + "/" + kRegistryName;
    const Fd fd(open(registry.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (fd && locked_elsewhere(fd.get())) return true;
  }
  return false;
}

uint64_t bytes_of(const struct statfs& fs) {
  // A tmpfs without a size has no blocks.
  return fs.f_blocks == 0 ? UINT64_MAX
                          : static_cast<uint64_t>(fs.f_blocks) * static_cast<uint64_t>(fs.f_bsize);
}

// Of several processes that do the same, one is the first next time.
void pause_shortly() {
  const timespec pause{0, static_cast<long>(random_u64() % (4 * kMilli))};
  nanosleep(&pause, nullptr);
}

// Everybody may take this lock, and keep it: a process that does not get it in time goes on
// without. It keeps two processes that start at once apart, and is nothing that safety rests on.
class MakingLock {
 public:
  MakingLock(const std::string& folder, Nanos patience)
      : fd_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    const Deadline deadline = Deadline::in(patience);
    while (fd_ && flock(fd_.get(), LOCK_EX | LOCK_NB) != 0 && !deadline.passed()) {
      const timespec pause{0, kMilli};
      nanosleep(&pause, nullptr);
    }
  }

 private:
  Fd fd_;  // the lock goes with it
};
}  // namespace

DefaultFolder::Places DefaultFolder::places() {
  // By its usual name, not by XDG_RUNTIME_DIR: a process without the variable (cron, sudo, a
  // service) has to find the same folder.
  return {"/dev/shm", "/run/user/" + std::to_string(geteuid()), geteuid(), kSecond};
}

// Segments lie in it: the usual size of such a tmpfs, a tenth of the RAM, is not enough.
bool DefaultFolder::own_has_room() const {
  struct stat st {};
  struct statfs own {
  }, shared{};
  return lstat(where_.own.c_str(), &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == where_.user &&
         (st.st_mode & 077) == 0 && statfs(where_.own.c_str(), &own) == 0 &&
         own.f_type == TMPFS_MAGIC && statfs(where_.shared.c_str(), &shared) == 0 &&
         bytes_of(own) >= bytes_of(shared) / 2;
}

std::vector<std::string> DefaultFolder::all_of_ours() const {
  std::vector<std::string> all;
  if (folder_of(where_.own, where_.user) && usable_by(in_own(), where_.user))
    all.push_back(in_own());
  std::vector<uint32_t> numbers;
  const Dir dir = open_dir(where_.shared);
  while (const dirent* e = dir ? readdir(dir.get()) : nullptr) {
    const std::string_view name = e->d_name;
    if (!name.starts_with(stem())) continue;
    const auto number = number_of(name.substr(stem().size()));
    if (number && usable_by(where_.shared + "/" + e->d_name, where_.user))
      numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  for (const uint32_t n : numbers) {
    all.push_back(where_.shared + "/" + stem() + (n == 0 ? "" : "-" + std::to_string(n)));
  }
  return all;
}

std::string DefaultFolder::existing() const {
  const std::vector<std::string> all = all_of_ours();
  if (all.empty()) return {};
  if (all.size() == 1) return all.front();
  const auto living = std::find_if(all.begin(), all.end(), has_living_node);
  return living != all.end() ? *living : all.front();
}

std::string DefaultFolder::find() const {
  if (std::string there = existing(); !there.empty()) return there;
  if (own_has_room()) return in_own();
  const std::string usual = where_.shared + "/" + stem();
  struct stat st {};
  return lstat(usual.c_str(), &st) != 0 ? usual : with_a_number();
}

std::string DefaultFolder::with_a_number() const {
  return where_.shared + "/" + stem() + "-" + std::to_string(1 + random_u64() % kLargestNumber);
}

Result<std::string> DefaultFolder::make() const {
  if (std::string there = existing(); !there.empty()) return there;
  const MakingLock lock(where_.shared, where_.patience);
  if (std::string there = existing(); !there.empty()) return there;
  const std::string usual = where_.shared + "/" + stem();
  std::string name = own_has_room() ? in_own() : usual;
  int why = 0;
  for (int i = 0; i < kTries; ++i) {
    fault_point("node.folder.making");
    if (mkdir(name.c_str(), 0700) == 0) {
      if (all_of_ours().size() == 1) return name;
      // Another process has made one in the same moment, without the lock. Each makes its own and
      // looks then, so that not both can keep theirs.
      rmdir(name.c_str());
      pause_shortly();
    } else if (why = errno; why != EEXIST && name != in_own()) {
      break;
    }
    if (std::string there = existing(); !there.empty()) return there;
    name = name == in_own() ? usual : with_a_number();
  }
  trace(kFacIni, kError, "node: cannot make folder {}: errno {}", name, why);
  if (why == ENOENT) {
    return because(Status::kInval,
                   "there is no /dev/shm: name a folder on a tmpfs, CMI_RUNTIME_DIR");
  }
  if (folder_of(usual, where_.user)) {
    return because(status_of_errno(why),
                   "cmi-UID in /dev/shm is this user's and not closed to others: chmod 0700");
  }
  return status_of_errno(why);
}

bool DefaultFolder::named(const std::string& folder) const {
  if (folder == in_own()) return true;
  const std::string start = where_.shared + "/" + stem();
  return folder.starts_with(start) && number_of(std::string_view(folder).substr(start.size()));
}

std::string default_runtime_dir() { return DefaultFolder().find(); }
bool is_default_runtime_dir(const std::string& dir) { return DefaultFolder().named(dir); }

}  // namespace cmi::node
