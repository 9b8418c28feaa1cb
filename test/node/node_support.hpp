// What the node's tests share: a runtime folder of their own, child processes that are killed and
// reaped whatever happens, and a reader of the registry that shares no code with the library's.
#pragma once

#include <doctest/doctest.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/node/node.hpp"

namespace cmi::test {

// A folder under /dev/shm that goes with the object, and the configuration of a node in it.
class NodeFolder {
 public:
  NodeFolder();
  ~NodeFolder();
  NodeFolder(const NodeFolder&) = delete;
  NodeFolder& operator=(const NodeFolder&) = delete;

  node::Config config(const std::string& name = "one") const;
  const std::string& runtime_dir() const { return dir_; }
  std::string node_dir(const std::string& name = "one") const;
  std::string registry_path(const std::string& name = "one") const;
  // Names in the node's folder, sorted; empty when the folder does not exist.
  std::vector<std::string> files(const std::string& name = "one") const;
  bool empty() const;  // no node's folder left

 private:
  std::string top_, dir_;
};

// A forked process that runs `body` and exits with 0 when it returns, 1 after a failing
// child_check.
class Child {
 public:
  explicit Child(const std::function<void(Child&)>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // In either process: one byte or one number for the other, in order. hear() fails after 30 s.
  void say(int64_t v);
  int64_t hear();
  // In the parent: sends SIGKILL and waits until the process is gone.
  void kill();
  // Waits for the end; the exit status, or minus the signal that killed it.
  int wait();
  bool succeeded() { return wait() == 0; }

 private:
  pid_t pid_ = -1;
  bool in_child_ = false, ended_ = false;
  int status_ = 0;
  int in_ = -1, out_ = -1;
};

// Inside a child, where doctest's checks would not be counted.
#define CHILD_CHECK(cond)                                                         \
  do {                                                                            \
    if (!(cond)) {                                                                \
      std::fprintf(stderr, "%s:%d: in a child: %s\n", __FILE__, __LINE__, #cond); \
      _exit(1);                                                                   \
    }                                                                             \
  } while (false)

// True as soon as `condition` is; false after 30 s.
bool eventually(const std::function<bool()>& condition);

// Reads the registry file and the folder under the registry's lock and returns what is wrong, one
// line each. With `settled`, nothing may be left of dead contexts or of removed segments.
std::string walk_registry(const NodeFolder& folder, bool settled, const std::string& name = "one");
std::string walk_registry_in(const std::string& node_dir, bool settled);  // the node's own folder

inline Bytes bytes(std::string_view s) { return std::as_bytes(std::span(s.data(), s.size())); }
inline std::string text(const std::vector<std::byte>& v) {
  return {reinterpret_cast<const char*>(v.data()), v.size()};
}

}  // namespace cmi::test
