// A container like those of Docker, which the test's process takes for itself and its children: no
// capability, the system calls refused that Docker's default seccomp profile refuses to such, a
// /dev/shm of its own of 64 MiB, and no /dev/userfaultfd. It cannot be left again, so the case must
// be the process's last. Needs root or the right to make a user namespace. Only for a process with
// one thread.
#pragma once

#include <cstddef>
#include <string>

namespace cmi::test {

// What somebody who runs containers may allow beyond the default.
enum class Allowed { kNothing, kUserfaultCall, kUserfaultDevice };

class Container {
 public:
  static constexpr size_t kSharedMemory = 64u << 20;

  explicit Container(Allowed allowed);

  bool here() const { return reason_.empty(); }
  const char* reason() const { return reason_.c_str(); }

 private:
  bool enter_namespaces();
  bool drop_privileges();
  bool filter_calls(bool userfault);
  bool failed(const char* what);

  std::string reason_;
};

}  // namespace cmi::test
