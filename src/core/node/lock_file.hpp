// Locks that the kernel gives back when their holder dies: OFD locks on single bytes, far behind
// the end of the registry file. One byte is the exclusive lock, one byte per context slot says that
// its context lives.
// An OFD lock belongs to an open file description: threads share it (hence the mutex), a forked
// child keeps it alive until it closes its copy.
#pragma once

#include <sys/types.h>

#include <optional>

#include "core/base/clock.hpp"
#include "core/base/lock.hpp"
#include "core/base/log.hpp"

namespace cmi::node {

inline constexpr off_t kExclusiveByte = off_t{1} << 40;
inline constexpr off_t kLifeByte = kExclusiveByte + 1;  // plus the context slot
inline constexpr Nanos kLockWait = 5 * kSecond;

bool try_lock_byte(int fd, off_t byte);
void unlock_byte(int fd, off_t byte);
// Whether another description than fd's holds a lock on the byte, or on any byte of the file. A
// lock of fd's own does not show. True where the kernel does not answer.
bool byte_locked_elsewhere(int fd, off_t byte);
bool locked_elsewhere(int fd);

struct LockFile {
  int fd = -1;  // not owned
  Mutex mutex;
};

// The exclusive lock of the node, held while the object lives; false when it was not had in time.
// Signals stay blocked while it is held, so that no handler of the client can jump out of the
// middle or make the others wait. Passed to functions called _locked as the proof that it is held.
class Exclusive {
 public:
  // The compiler's analysis knows no lock that may fail in a constructor.
  Exclusive(LockFile& file, Deadline deadline) CMI_TSA(no_thread_safety_analysis);
  ~Exclusive() CMI_TSA(no_thread_safety_analysis);
  Exclusive(const Exclusive&) = delete;
  Exclusive& operator=(const Exclusive&) = delete;
  explicit operator bool() const { return held_; }

 private:
  template <class... Args>
  friend void note(Facility f, Level l, fmt::format_string<Args...> format, Args&&... args);

  LockFile& file_;
  bool held_ = false;
  std::optional<SignalsBlocked> signals_;
  Facility note_facility_ = kFacAll;
  Level note_level_ = kNone;  // kNone: no note
  char note_[200];
};

// The lock that this thread holds, if any.
extern constinit thread_local Exclusive* t_exclusive;

// A trace line that waits until this thread has given the lock back: trace lines run callbacks of
// the client, and those may call the library. The first of several is kept: it is the cause.
template <class... Args>
void note(Facility f, Level l, fmt::format_string<Args...> format, Args&&... args) {
  Exclusive* x = t_exclusive;
  if (x == nullptr) return trace(f, l, format, std::forward<Args>(args)...);
  if (x->note_level_ != kNone || !Trace::get().on(f, l)) return;
  auto r = fmt::format_to_n(x->note_, sizeof x->note_ - 1, format, std::forward<Args>(args)...);
  *r.out = '\0';
  x->note_facility_ = f;
  x->note_level_ = l;
}

}  // namespace cmi::node
