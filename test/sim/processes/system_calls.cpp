// Functions of the C library as the threads of a simulation see them: waits that pass the
// simulation's time and let others run, threads that are the simulation's, an environment for each
// process, and randomness that a seed repeats. The library and the tests are linked with these;
// outside of a simulation they do what the C library does.
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "sim/processes/processes.hpp"
#include "sim/simulation.hpp"

extern char** environ;

namespace cmi::test {

namespace {

// pthread_t of a thread of the simulation: its number, and this.
constexpr uint64_t kThread = uint64_t{0x51a7} << 48, kNumber = (uint64_t{1} << 48) - 1;
constexpr int64_t kLongestNap = 10 * kMilli;  // of a wait for descriptors

// Of the calling thread, where it is one of a simulation's.
Simulation* simulation() {
  auto* const s = static_cast<Simulation*>(schedule());
  return s != nullptr && s->inside() ? s : nullptr;
}

// The next definition of a function: the C library's.
template <class F>
F* real(F* /*ours*/, const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

// False: the caller is no thread of a simulation. Outside of all threads the others run meanwhile.
bool slept(int64_t nanos) {
  auto* const s = static_cast<Simulation*>(schedule());
  if (s == nullptr) return false;
  if (!s->inside()) {
    (void)s->run_until([] { return false; }, nanos);
    return true;
  }
  for (const int64_t end = s->now() + nanos; s->now() < end;) s->idle(end - s->now());
  return true;
}

int64_t nanos_of(const timespec& t) { return t.tv_sec * kSecond + t.tv_nsec; }

// The calling process's variable, or the program's where there is no process or the simulation
// leaves it to the program: all but CMI_, though traces are for all.
char* variable(const char* name) {
  const std::string_view wanted(name);
  if (const Simulation* s = simulation(); s != nullptr && wanted.starts_with("CMI_")) {
    const char* const value = s->variable(name);
    if (value != nullptr || !wanted.starts_with("CMI_TRACE")) return const_cast<char*>(value);
  }
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry(*at);
    if (entry.size() > wanted.size() && entry.starts_with(wanted) && entry[wanted.size()] == '=') {
      return *at + wanted.size() + 1;
    }
  }
  return nullptr;
}

}  // namespace

}  // namespace cmi::test

using cmi::test::kThread;
using cmi::test::simulation;

extern "C" {

int usleep(useconds_t micros) {
  if (cmi::test::slept(int64_t{micros} * cmi::kMicro)) return 0;
  const timespec span{micros / 1000000, static_cast<long>(micros % 1000000) * 1000};
  return static_cast<int>(::syscall(SYS_nanosleep, &span, nullptr));
}

int nanosleep(const timespec* span, timespec* left) {
  if (cmi::test::slept(cmi::test::nanos_of(*span))) return 0;
  return static_cast<int>(::syscall(SYS_nanosleep, span, left));
}

int sched_yield() noexcept {
  if (auto* s = simulation(); s != nullptr) {
    s->idle(0);
    return 0;
  }
  return static_cast<int>(::syscall(SYS_sched_yield));
}

int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  auto* const s = simulation();
  if (s == nullptr) {
    timespec left = timeout != nullptr ? *timeout : timespec{};  // the kernel changes it
    return static_cast<int>(
        ::syscall(SYS_ppoll, fds, count, timeout != nullptr ? &left : nullptr, mask, _NSIG / 8));
  }
  const int64_t end = timeout != nullptr ? s->now() + cmi::test::nanos_of(*timeout) : INT64_MAX;
  for (int64_t left = end - s->now();; left = end - s->now()) {
    if (left > 0) s->idle(std::min(left, cmi::test::kLongestNap));
    timespec none{};
    const int ready = static_cast<int>(::syscall(SYS_ppoll, fds, count, &none, nullptr, _NSIG / 8));
    if (ready != 0 || left <= 0) return ready;
  }
}

int poll(pollfd* fds, nfds_t count, int millis) {
  const timespec timeout{millis / 1000, millis % 1000 * 1000000L};
  return ppoll(fds, count, millis >= 0 ? &timeout : nullptr, nullptr);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) noexcept {
  auto* const s = simulation();
  if (s == nullptr) {
    static auto* const create = cmi::test::real(&pthread_create, "pthread_create");
    return create(thread, attributes, body, argument);
  }
  *thread = kThread | s->start(s->process(), [body, argument] { body(argument); });
  return 0;
}

int pthread_join(pthread_t thread, void** result) {
  auto* const s = simulation();
  if (s == nullptr || (thread & ~cmi::test::kNumber) != kThread) {
    static auto* const join = cmi::test::real(&pthread_join, "pthread_join");
    return join(thread, result);
  }
  while (!s->has_ended(thread & cmi::test::kNumber)) s->idle(0);
  return 0;
}

int pthread_detach(pthread_t thread) noexcept {
  if ((thread & ~cmi::test::kNumber) == kThread) return 0;
  static auto* const detach = cmi::test::real(&pthread_detach, "pthread_detach");
  return detach(thread);
}

char* getenv(const char* name) noexcept { return cmi::test::variable(name); }
char* secure_getenv(const char* name) noexcept { return cmi::test::variable(name); }

ssize_t getrandom(void* to, size_t bytes, unsigned flags) {
  auto* const s = simulation();
  if (s == nullptr) return ::syscall(SYS_getrandom, to, bytes, flags);
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = s->random();
    std::memcpy(static_cast<char*>(to) + at, &word, std::min(sizeof word, bytes - at));
  }
  return static_cast<ssize_t>(bytes);
}

// A fault point that kills or stops its process.
int kill(pid_t process, int number) noexcept {
  if (simulation() != nullptr && process == ::getpid() && number == SIGKILL) {
    cmi::test::die_here();
    return 0;
  }
  return static_cast<int>(::syscall(SYS_kill, process, number));
}

int tgkill(pid_t process, pid_t thread, int number) {
  if (simulation() != nullptr && process == ::getpid() && number == SIGSTOP) {
    cmi::test::stop_here();
    return 0;
  }
  return static_cast<int>(::syscall(SYS_tgkill, process, thread, number));
}

}  // extern "C"
