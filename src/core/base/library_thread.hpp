// Threads that the library makes for itself: known as such, and never without SIGBUS,
// which tells of broken memory (core/memory/vm/guarded_copy.hpp). What is theirs to do is decided
// elsewhere.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <thread>
#include <utility>

#include "core/base/cause.hpp"

namespace cmi {

inline constexpr const char* kNoThread =
    "no thread can be made: see ulimit -u, and pids.max of the control group";

// Starts *thread, which must not be joinable, to call what std::thread would. kNoMem, with the
// cause: the kernel or the C library makes none.
template <class... What>
Status start_thread(std::thread* thread, What&&... what) {
  try {
    *thread = std::thread(std::forward<What>(what)...);
  } catch (const std::exception&) {
    return because(Status::kNoMem, kNoThread);
  }
  return Status::kOk;
}

// A thread of the library's own, which runs nothing of the client's.
inline constinit thread_local bool t_library_thread = false;

// First thing in such a thread.
class LibraryThread {
 public:
  LibraryThread() {
    t_library_thread = true;
    // Its mask comes from the thread that made it, where the client may have blocked SIGBUS; a
    // broken page would end the process then.
    sigset_t bus;
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &bus, nullptr);
  }
  LibraryThread(const LibraryThread&) = delete;
  LibraryThread& operator=(const LibraryThread&) = delete;
};

}  // namespace cmi
