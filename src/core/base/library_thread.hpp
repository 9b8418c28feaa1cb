// Threads that the library makes for itself: known as such, counted, and never without SIGBUS,
// which tells of broken memory (core/memory/vm/guarded_copy.hpp). What is theirs to do is decided
// elsewhere.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstdint>

namespace cmi {

// A thread of the library's own, which runs nothing of the client's.
inline constinit thread_local bool t_library_thread = false;

// Low half: how many of these there are. High half: how often that has changed.
inline constinit std::atomic<uint64_t> g_library_threads{0};

// First thing in such a thread, until its last.
class LibraryThread {
 public:
  LibraryThread() {
    t_library_thread = true;
    g_library_threads.fetch_add(kChange + 1, std::memory_order_seq_cst);
    // Its mask comes from the thread that made it, where the client may have blocked SIGBUS; a
    // broken page would end the process then.
    sigset_t bus;
    sigemptyset(&bus);
    sigaddset(&bus, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &bus, nullptr);
  }
  ~LibraryThread() { g_library_threads.fetch_add(kChange - 1, std::memory_order_seq_cst); }
  LibraryThread(const LibraryThread&) = delete;
  LibraryThread& operator=(const LibraryThread&) = delete;

 private:
  static constexpr uint64_t kChange = uint64_t{1} << 32;
};

}  // namespace cmi
