// A small tmpfs in a mount namespace that this test process takes for itself, with its children.
// Needs root; without it, reason() says why there is none.
#pragma once

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace cmi::test {

class SmallTmpfs {
 public:
  SmallTmpfs(std::string folder, size_t bytes) : folder_(std::move(folder)) {
    const std::string options = "mode=0700,size=" + std::to_string(bytes);
    ::mkdir(folder_.c_str(), 0700);
    mounted_ = ::unshare(CLONE_NEWNS) == 0 &&
               ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               ::mount("tmpfs", folder_.c_str(), "tmpfs", 0, options.c_str()) == 0;
    if (!mounted_) reason_ = std::string("cannot mount a tmpfs: ") + std::strerror(errno);
  }
  ~SmallTmpfs() {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  SmallTmpfs(const SmallTmpfs&) = delete;
  SmallTmpfs& operator=(const SmallTmpfs&) = delete;

  bool mounted() const { return mounted_; }
  const char* reason() const { return reason_.c_str(); }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  std::string reason_;
  bool mounted_ = false;
};

}  // namespace cmi::test
