// Processes on several nodes for one test: the test forks children, each with its own CMI_NODE and
// all with one private runtime folder, and has them run captureless lambdas:
//
//   Cluster cluster;
//   Process& home = cluster.spawn("home");
//   uint64_t sum = home.run([](uint64_t a, uint64_t b) { return a + b; }, 1, 2);
//
// Arguments and results are copied as bytes. The library is used by the children alone, so that the
// test program itself has no thread but its first, and need not be started anew for each: libfabric
// is loaded once. A child gives up what execve() would end. Every wait has a deadline; a child that
// died is reported with its signal, as an exception. Whatever happens, no child outlives its
// Cluster, whose end also checks that nothing was left in the runtime folder, and of what bears the
// children's numbers in /dev/shm and of their own children nothing either.
//
// In a test that is compiled with CMI_TEST_SIMULATED the children are simulated nodes of the test's
// own process (sim/processes/processes.cpp): their threads take turns, and their time is the
// simulation's. A case that needs processes is a PROCESS_CASE: there is none of it in such a
// program.
//
// CMI_TEST_PROVIDER, _ADDRESS, _KERNEL, _FAULT and _LOCAL in the test's environment become
// CMI_PROVIDER and so on in that of the children, unless the test says otherwise. Without _LOCAL
// they keep to the network; with _LOCAL=mixed every second node maps pages.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/fd.hpp"
#include "support/simulated.hpp"

namespace cmi::test {

// Whether CMI_FAULT=thread can work here: found out without the library.
bool fault_threads_possible();
// Whether the children have the kernel note stores at home (PAGEMAP_SCAN, Linux 6.7).
bool kernel_notes_stores();

using Env = std::vector<std::pair<std::string, std::string>>;  // added to the environment

// Whether imports of this run map the pages of homes on their machine (CMI_TEST_LOCAL=on).
inline bool mapped() {
  const char* const how = std::getenv("CMI_TEST_LOCAL");
  return how != nullptr && std::strcmp(how, "on") == 0;
}

inline constexpr int kSeconds = 30;           // the usual deadline of one command
inline constexpr size_t kMaxMessage = 60000;  // bytes of arguments or of a result

struct ChildFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Thunk = size_t (*)(const std::byte* in, std::byte* out);

namespace detail {

template <class T>
T take(const std::byte*& in) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>);
  T value;
  std::memcpy(static_cast<void*>(&value), in, sizeof value);
  in += sizeof value;
  return value;
}

// What the child calls for a lambda of type F: the lambda's code is found by F alone.
template <class F, class R, class... A>
size_t thunk([[maybe_unused]] const std::byte* in, [[maybe_unused]] std::byte* out) {
  std::tuple<A...> arguments{take<A>(in)...};  // braces: taken from left to right
  if constexpr (std::is_void_v<R>) {
    std::apply(F{}, std::move(arguments));
    return 0;
  } else {
    R result = std::apply(F{}, std::move(arguments));
    std::memcpy(out, &result, sizeof result);
    return sizeof result;
  }
}

template <class R, class... A>
struct Signature {};
template <class R, class C, class... A>
Signature<R, std::decay_t<A>...> signature_of(R (C::*)(A...) const);

}  // namespace detail

// Children of all clusters that there are.
std::set<pid_t>& living();

// Where the code of a thunk lies in the program.
uint64_t thunk_offset(Thunk thunk);

class Process;

// A command that is under way. One at a time for each process.
template <class R>
class Pending {
 public:
  explicit Pending(Process* process) : process_(process) {}
  R get(int seconds = kSeconds);
  // Makes called_back() true in the child, then gets the result.
  R finish(int seconds = kSeconds);

 private:
  Process* process_;
};

class Process {
 public:
  Process(std::string name, pid_t pid, Fd channel);
  ~Process();  // kills and reaps
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  template <class F, class... A>
  auto start([[maybe_unused]] F lambda, A... arguments) {
    return start_as<F>(decltype(detail::signature_of(&F::operator())){}, arguments...);
  }
  template <class F, class... A>
  auto run(F lambda, A... arguments) {
    return start(lambda, arguments...).get();
  }

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }
  void signal(int number);
  // SIGSTOP, and wait until no thread of it runs any more.
  void stop();
  // Waits for the process to end by itself; the status of waitpid().
  int wait_end(int seconds = kSeconds);
  // SIGKILL, and wait.
  void kill();
  // Ends it in good order: the context is finished, the program exits. Says how it ended.
  int end();
  bool ended() const { return ended_; }

  // For Pending.
  void receive(void* result, size_t size, int seconds);
  void nudge();

 private:
  template <class F, class R, class... W, class... A>
  Pending<R> start_as(detail::Signature<R, W...>, A... arguments) {
    static_assert(std::is_empty_v<F>, "the lambda must not capture");
    static_assert(std::is_void_v<R> || std::is_trivially_copyable_v<R>);
    static_assert((sizeof(W) + ... + 0) <= kMaxMessage);
    std::vector<std::byte> bytes;
    (append(&bytes, static_cast<W>(arguments)), ...);
    send(thunk_offset(&detail::thunk<F, R, W...>), bytes);
    return Pending<R>(this);
  }
  template <class T>
  static void append(std::vector<std::byte>* bytes, const T& value) {
    // Not insert(), of which GCC 12 says, optimising, that it writes past the end.
    const size_t at = bytes->size();
    bytes->resize(at + sizeof value);
    std::memcpy(bytes->data() + at, &value, sizeof value);
  }
  void send(uint64_t offset, const std::vector<std::byte>& arguments);
  bool reap(int seconds);
  std::string ending() const;

  std::string name_;
  pid_t pid_;
  Fd channel_;
  bool ended_ = false;
  int status_ = 0;
};

template <class R>
R Pending<R>::get(int seconds) {
  if constexpr (std::is_void_v<R>) {
    process_->receive(nullptr, 0, seconds);
  } else {
    R result;
    process_->receive(&result, sizeof result, seconds);
    return result;
  }
}
template <class R>
R Pending<R>::finish(int seconds) {
  process_->nudge();
  return get(seconds);
}

class Litter;

class Cluster {
 public:
  Cluster();
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // A process of the node that has called cmi_ini(); the test ends if that fails.
  Process& spawn(const std::string& node, const Env& env = {});
  // A process that has done nothing yet.
  Process& spawn_bare(const std::string& node, const Env& env = {});
  // Processes of the node start in this network namespace and with these variables from now on.
  void place(const std::string& node, Fd network, Env env);

  const std::string& runtime_folder() const { return runtime_folder_; }
  // For the test's own files; goes with the cluster.
  const std::string& scratch() const { return scratch_; }
  // Paths of all files below the runtime folder.
  std::vector<std::string> files() const;

 private:
  void check_no_litter() const;
  // What there is beside the children: the simulation.
  void open();
  void close();
  Env environment_of(const std::string& node, const Env& env) const;

  std::unique_ptr<Litter> litter_;
  std::set<pid_t> pids_;  // of all that it spawned
  std::string scratch_;
  std::string runtime_folder_;
  std::vector<std::string> nodes_;
  struct Place {
    Fd network;
    Env env;
  };
  std::map<std::string, Place> places_;
  std::vector<std::unique_ptr<Process>> processes_;
};

// ---- In the child ---------------------------------------------------------------------------

// True once the parent has called finish() for the command that runs.
bool called_back();

// How a process ended, for messages.
std::string describe_status(int status);
bool died_by(int status, int signal_number);

}  // namespace cmi::test
