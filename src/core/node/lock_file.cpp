// OFD locks with deadlines. Waiting is trying again after a short sleep: the kernel's own waiting
// has no deadline, and the lock is held for microseconds. Any thread.
#include "core/node/lock_file.hpp"

#include <fcntl.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

namespace cmi::node {

namespace {
struct flock byte_lock(short type, off_t byte) {
  struct flock l {};
  l.l_type = type;
  l.l_whence = SEEK_SET;
  l.l_start = byte;
  l.l_len = 1;
  l.l_pid = 0;  // must be zero for OFD locks
  return l;
}

class Sleeper {
 public:
  // False when the deadline has passed.
  bool sleep(Deadline deadline) {
    if (deadline.passed()) return false;
    timespec t{0, span_};
    nanosleep(&t, nullptr);
    span_ = std::min(span_ * 2, 400 * kMicro);
    return true;
  }

 private:
  Nanos span_ = 10 * kMicro;
};
}  // namespace

bool try_lock_byte(int fd, off_t byte) {
  struct flock l = byte_lock(F_WRLCK, byte);
  return fcntl(fd, F_OFD_SETLK, &l) == 0;
}

void unlock_byte(int fd, off_t byte) {
  struct flock l = byte_lock(F_UNLCK, byte);
  fcntl(fd, F_OFD_SETLK, &l);
}

bool byte_locked_elsewhere(int fd, off_t byte) {
  struct flock l = byte_lock(F_WRLCK, byte);
  // A failing question must not declare anyone dead.
  return fcntl(fd, F_OFD_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

bool locked_elsewhere(int fd) {
  struct flock l = byte_lock(F_WRLCK, 0);
  l.l_len = 0;  // to the end of all files
  return fcntl(fd, F_OFD_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

constinit thread_local Exclusive* t_exclusive = nullptr;

Exclusive::Exclusive(LockFile& file, Deadline deadline) : file_(file) {
  Sleeper sleeper;
  for (int err = 0;;) {
    signals_.emplace();
    if (file_.mutex.try_lock()) {
      if (try_lock_byte(file_.fd, kExclusiveByte)) {
        held_ = true;
        t_exclusive = this;
        return;
      }
      err = errno;
      file_.mutex.unlock();
    }
    signals_.reset();
    if (!sleeper.sleep(deadline)) {
      // A caller that tries only once will try again.
      if (deadline.at != 0) {
        trace(kFacIni, kWarn, "node: the registry's lock was not had in time: errno {}", err);
      }
      return;
    }
  }
}

Exclusive::~Exclusive() {
  if (!held_) return;
  t_exclusive = nullptr;
  unlock_byte(file_.fd, kExclusiveByte);
  file_.mutex.unlock();
  signals_.reset();
  if (note_level_ != kNone) Trace::get().line(note_facility_, note_level_, note_);
}

}  // namespace cmi::node
