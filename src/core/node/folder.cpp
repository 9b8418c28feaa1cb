// The node's folder on the file system. Called by join, by the reaper and at the end; any thread.
// Whoever removes a folder holds the lock of its registry; whoever opens one may find it gone at
// the next step and starts over.
#include "core/node/folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/lock.hpp"
#include "core/node/default_folder.hpp"
#include "core/node/lock_file.hpp"

namespace cmi::node {

FileName segment_file_name(int32_t id) {
  FileName n;
  std::snprintf(n.text, sizeof n.text, "seg-%d", id);
  return n;
}
FileName bus_file_name(uint32_t slot) {
  FileName n;
  std::snprintf(n.text, sizeof n.text, "bus-%u", slot);
  return n;
}
FileName hold_file_name(uint32_t slot) {
  FileName n;
  std::snprintf(n.text, sizeof n.text, "rsv-%u", slot);
  return n;
}
FileName folder_name(NodeId id) {
  FileName n;
  std::snprintf(n.text, sizeof n.text, "%016llx", static_cast<unsigned long long>(id.hi));
  return n;
}

Status status_of_errno(int err) {
  switch (err) {
    case ENOSPC:
    case ENOMEM:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case EFBIG:
    case ENOBUFS:
      return Status::kNoMem;
    case EACCES:
    case EPERM:
    case EROFS:
    case ELOOP:
    case ENOTDIR:
      return Status::kPerm;
    default:
      return Status::kInval;
  }
}

namespace {
bool owned_by_us_alone(int fd, mode_t type) {
  struct stat st;
  return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == type && st.st_uid == geteuid() &&
         (st.st_mode & 077) == 0;
}

// kReconfig: not there.
Result<Fd> open_dir(int at, const char* path) {
  Fd fd(openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) {
    int err = errno;
    if (err == ENOENT) return Status::kReconfig;
    note(kFacIni, kError, "node: cannot open folder {}: errno {}", path, err);
    return status_of_errno(err);
  }
  if (!owned_by_us_alone(fd.get(), S_IFDIR)) {
    struct stat st {};
    const bool others = fstat(fd.get(), &st) == 0 && st.st_uid != geteuid();
    if (others) {
      note(kFacIni, kError, "node: folder {} belongs to user {}: name another one, CMI_RUNTIME_DIR",
           path, st.st_uid);
      return because(Status::kPerm,
                     "the folder belongs to another user: name one of your own, CMI_RUNTIME_DIR");
    }
    note(kFacIni, kError, "node: folder {} is not ours alone", path);
    return because(Status::kPerm,
                   "the folder has to be this user's and closed to others, mode 0700");
  }
  return fd;
}

Status make_dir(int at, const char* path) {
  if (mkdirat(at, path, 0700) == 0 || errno == EEXIST) return Status::kOk;
  int err = errno;
  note(kFacIni, kError, "node: cannot make folder {}: errno {}", path, err);
  if (err == ENOENT) return because(Status::kInval, "the folder above it does not exist");
  return status_of_errno(err);
}

// One try. False: the last member of the node took the folder away under our hands.
// `chosen`: the runtime folder was there a moment ago, and is made by nobody but DefaultFolder.
Result<bool> try_open(bool create, bool chosen, Folder* f) {
  if (create && !chosen) {
    if (Status s = make_dir(AT_FDCWD, f->runtime_dir.c_str()); !ok(s)) return s;
  }
  Result<Fd> parent = open_dir(AT_FDCWD, f->runtime_dir.c_str());
  if (!parent) {
    if (parent.status() != Status::kReconfig) return parent.status();
    return !create;
  }
  if (create && mkdirat(parent->get(), f->name.text, 0700) == 0) {
    fault_point("node.join.folder_made");
  } else if (create && errno != EEXIST && errno != ENOENT) {
    return status_of_errno(errno);
  }
  Result<Fd> dir = open_dir(parent->get(), f->name.text);
  if (!dir && dir.status() != Status::kReconfig) return dir.status();
  if (!dir && create) return false;
  if (dir) f->dir = dir.take();
  f->parent = parent.take();
  return true;
}
}  // namespace

Result<Folder> open_folder(const Config& config, bool create, Deadline deadline) {
  Folder f;
  f.name = folder_name(node_id_of(config));
  const bool chosen = create && config.default_dir;
  f.runtime_dir = config.runtime_dir;
  while (f.runtime_dir.size() > 1 && f.runtime_dir.back() == '/') f.runtime_dir.pop_back();
  if (!chosen && (f.runtime_dir.empty() || f.runtime_dir.find('\0') != std::string::npos)) {
    return Status::kInval;
  }
  for (;;) {
    if (chosen) {
      Result<std::string> dir = DefaultFolder().make();
      if (!dir) return dir.status();
      f.runtime_dir = dir.take();
    }
    f.default_dir = is_default_runtime_dir(f.runtime_dir);
    const Result<bool> opened = try_open(create, chosen, &f);
    if (!opened) return opened.status();
    if (*opened) return f;
    if (deadline.passed()) return Status::kReconfig;
  }
}

Result<Fd> open_file(const Folder& folder, const char* name, int flags) {
  Fd fd(openat(folder.dir.get(), name, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600));
  if (!fd) {
    int err = errno;
    if (err == ENOENT) return Status::kReconfig;
    note(kFacIni, kError, "node: cannot open {}: errno {}", name, err);
    return status_of_errno(err);
  }
  if (!owned_by_us_alone(fd.get(), S_IFREG)) {
    note(kFacIni, kError, "node: file {} is not a plain file of ours alone", name);
    return Status::kPerm;
  }
  return fd;
}

Status allocate_file(int fd, uint64_t from, uint64_t to) {
  if (to > static_cast<uint64_t>(INT64_MAX)) return Status::kNoMem;
  // In steps, each without signals: tmpfs gives up a whole call, and undoes it, for one signal, and
  // a client with a fast timer would never get a large segment.
  constexpr uint64_t kStep = 64 << 20;
  for (uint64_t at = from; at < to; at += kStep) {
    SignalsBlocked blocked;
    off_t len = static_cast<off_t>(std::min(kStep, to - at));
    int err = EINTR;
    for (int tries = 0; err == EINTR && tries < 100; ++tries) {
      err = fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at), len) == 0 ? 0 : errno;
    }
    if (err != 0) {
      note(kFacSeg, kWarn, "node: no room for {} bytes of shared memory: errno {}", to - from, err);
      return err == EINTR ? Status::kNoMem : status_of_errno(err);
    }
  }
  return Status::kOk;
}

void sweep_folder(const Folder& folder, KeepFile keep, void* arg) {
  Fd fd(openat(folder.dir.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return;
  DIR* dir = fdopendir(fd.get());
  if (dir == nullptr) return;
  fd.release();
  while (dirent* e = readdir(dir)) {
    std::string_view name = e->d_name;
    bool tmp = name.starts_with("tmp-");
    if (!tmp) {
      if (!name.starts_with("seg-") && !name.starts_with("bus-") && !name.starts_with("rsv-")) {
        continue;
      }
      uint32_t number = 0;
      auto [end, err] = std::from_chars(name.data() + 4, name.data() + name.size(), number);
      if (err != std::errc{} || end != name.data() + name.size()) continue;
      if (keep(arg, name[0], number)) continue;
    }
    unlinkat(folder.dir.get(), e->d_name, 0);
  }
  closedir(dir);
}

void remove_folder(const Folder& folder) {
  fault_point("node.folder.emptied");
  // From here a process that waits for the lock finds its registry without a name and starts over.
  unlinkat(folder.dir.get(), kRegistryName, 0);
  fault_point("node.folder.registry_unlinked");
  unlinkat(folder.parent.get(), folder.name.text, AT_REMOVEDIR);
  fault_point("node.folder.removed");
  if (folder.default_dir) rmdir(folder.runtime_dir.c_str());
}

}  // namespace cmi::node
