// Waiting for a child of nodes.hpp to stop by itself, at a fault point. In the test's process.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.hpp"
#include "system/nodes.hpp"

namespace cmi::test {

#ifdef CMI_TEST_SIMULATED
bool await_stopped(const Process& process);
#else
inline bool await_stopped(const Process& process) {
  for (const Deadline deadline = Deadline::in(kSeconds * kSecond); !deadline.passed();
       ::usleep(500)) {
    siginfo_t found{};
    if (::waitid(P_PID, static_cast<id_t>(process.pid()), &found, WSTOPPED | WNOHANG) == 0 &&
        found.si_pid == process.pid()) {
      return true;
    }
  }
  return false;
}
#endif

}  // namespace cmi::test
