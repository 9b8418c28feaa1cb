// Starting, commanding and ending the processes of a test, and the loop that they run. On simulated
// nodes it is sim/processes/processes.cpp that does so.
#include "system/nodes.hpp"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "core/base/clock.hpp"
#include "support/skip.hpp"
#include "support/stack_in_use.hpp"
#include "system/calls.hpp"
#include "system/guard.hpp"

extern char** environ;

// libfabric's own leaks; unused without the leak sanitizer.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libfabric.so\n"; }

namespace cmi::test {

namespace {

struct Header {
  uint64_t offset = 0;  // of the thunk; 0: nothing to run, see finish()
  uint64_t size = 0;    // bytes that follow in the same packet
};

size_t anchor(const std::byte*, std::byte*) { return 0; }

int g_channel = -1;  // in a child: its end of the socket pair

// The stack of a child's first thread, and the one of the test that it has left for good.
StackInUse g_child_stack, g_left_stack;

[[noreturn]] void serve() {
  take_stack(&g_child_stack, &g_left_stack);
  keep_stack(g_left_stack);
  install_guard();
  std::vector<std::byte> in(sizeof(Header) + kMaxMessage);
  std::vector<std::byte> out(kMaxMessage);
  for (;;) {
    const ssize_t got = ::recv(g_channel, in.data(), in.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < static_cast<ssize_t>(sizeof(Header))) break;
    Header header;
    std::memcpy(&header, in.data(), sizeof header);
    if (header.offset == 0) continue;
    const auto thunk = reinterpret_cast<Thunk>(reinterpret_cast<uint64_t>(&anchor) + header.offset);
    const size_t size = thunk(in.data() + sizeof header, out.data());
    while (::send(g_channel, out.data(), size == 0 ? 1 : size, MSG_NOSIGNAL) < 0 &&
           errno == EINTR) {
    }
  }
  finish_context();
  std::exit(0);
}

// Skips all cases where the faults of threads are asked for and cannot be had.
class FaultThreadCheck : public doctest::IReporter {
 public:
  explicit FaultThreadCheck(const doctest::ContextOptions& /*options*/) {}
  void test_run_start() override {
    const char* fault = std::getenv("CMI_TEST_FAULT");
    if (fault != nullptr && std::strcmp(fault, "thread") == 0 && !fault_threads_possible()) {
      std::puts("SKIPPED: no userfaultfd for the faults of system calls, or a kernel before 6.6");
      std::exit(kSkippedStatus);
    }
  }
  void report_query(const doctest::QueryData& /*query*/) override {}
  void test_run_end(const doctest::TestRunStats& /*stats*/) override {}
  void test_case_start(const doctest::TestCaseData& /*data*/) override {}
  void test_case_reenter(const doctest::TestCaseData& /*data*/) override {}
  void test_case_end(const doctest::CurrentTestCaseStats& /*stats*/) override {}
  void test_case_exception(const doctest::TestCaseException& /*exception*/) override {}
  void subcase_start(const doctest::SubcaseSignature& /*subcase*/) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData& /*assertion*/) override {}
  void log_message(const doctest::MessageData& /*message*/) override {}
  void test_case_skipped(const doctest::TestCaseData& /*data*/) override {}
};
REGISTER_LISTENER("fault_thread_check", 0, FaultThreadCheck);

// What a child shares with its parent before execve() would end it: signal handlers, files that are
// closed on execve(), the library's variables.
void forget_parent(int channel, const Env& env) {
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    ::signal(number, SIG_DFL);
  }
  const stack_t none{nullptr, SS_DISABLE, 0};
  ::sigaltstack(&none, nullptr);

  std::vector<int> files;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    files.push_back(std::stoi(entry.path().filename()));
  }
  for (const int file : files) {
    const int flags = ::fcntl(file, F_GETFD);
    if (file != channel && flags >= 0 && (flags & FD_CLOEXEC) != 0) ::close(file);
  }

  std::vector<std::string> stale;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry(*at);
    if (entry.starts_with("CMI_") && !entry.starts_with("CMI_TRACE")) {
      stale.push_back(entry.substr(0, entry.find('=')));
    }
  }
  for (const std::string& name : stale) ::unsetenv(name.c_str());
  for (const auto& [name, value] : env) ::setenv(name.c_str(), value.c_str(), 1);
}

// Moves what the child will map to other addresses than its siblings': an address of one process
// must mean nothing to another.
void shift_mappings() {
  constexpr size_t kMost = 4096;
  const size_t pages = 1 + static_cast<size_t>(::getpid()) % kMost;
  ::mmap(nullptr, pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE)), PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

// At the bottom of a stack of its own: what unwinds the child's first thread (pthread_exit) must
// not come to the frames of the test that forked.
[[noreturn]] void serve_on_own_stack() {
  constexpr size_t kStack = 8 << 20;
  static ucontext_t bottom;
  void* const stack = ::mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED || ::getcontext(&bottom) != 0) ::_exit(124);
  ::mprotect(stack, static_cast<size_t>(::sysconf(_SC_PAGESIZE)), PROT_NONE);
  bottom.uc_stack = {stack, 0, kStack};
  ::makecontext(&bottom, &serve, 0);
  g_child_stack = {stack, kStack};
  leave_stack(&g_left_stack, g_child_stack);
  ::setcontext(&bottom);
  ::_exit(124);
}

// Loaded once here, libfabric is there in each child: a constructor of Debian's measures a clock
// for 0.2 s.
void load_fabric() {
  static void* const fabric = ::dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
  static_cast<void>(fabric);
}

}  // namespace

uint64_t thunk_offset(Thunk thunk) {
  return reinterpret_cast<uint64_t>(thunk) - reinterpret_cast<uint64_t>(&anchor);
}

bool called_back() {
  pollfd waiting{g_channel, POLLIN, 0};
  return ::poll(&waiting, 1, 0) != 0;
}

// ---- Process --------------------------------------------------------------------------------

std::set<pid_t>& living() {
  static std::set<pid_t> pids;
  return pids;
}

Process::Process(std::string name, pid_t pid, Fd channel)
    : name_(std::move(name)), pid_(pid), channel_(std::move(channel)) {
  living().insert(pid_);
}

Process::~Process() {
  kill();
  living().erase(pid_);
}

void Process::signal(int number) {
  if (!ended_) ::kill(pid_, number);
}

void Process::stop() {
  signal(SIGSTOP);
  while (!ended_ && ::waitpid(pid_, &status_, WUNTRACED) == -1 && errno == EINTR) {
  }
  ended_ = ended_ || !WIFSTOPPED(status_);
}

bool Process::reap(int seconds) {
  const Deadline deadline = Deadline::in(seconds * kSecond);
  while (!ended_) {
    if (::waitpid(pid_, &status_, WNOHANG) == pid_) {
      ended_ = true;
    } else if (deadline.passed()) {
      return false;
    } else {
      ::usleep(500);
    }
  }
  return true;
}

int Process::wait_end(int seconds) {
  if (!reap(seconds)) throw ChildFailed(name_ + " did not end in time");
  return status_;
}

void Process::kill() {
  if (ended_) return;
  ::kill(pid_, SIGKILL);
  reap(kSeconds);
}

int Process::end() {
  channel_.reset();
  return wait_end();
}

std::string Process::ending() const { return name_ + ": " + describe_status(status_); }

void Process::send(uint64_t offset, const std::vector<std::byte>& arguments) {
  Header header{offset, arguments.size()};
  std::vector<std::byte> packet(sizeof header + arguments.size());
  std::memcpy(packet.data(), &header, sizeof header);
  if (!arguments.empty()) {
    std::memcpy(packet.data() + sizeof header, arguments.data(), arguments.size());
  }
  if (::send(channel_.get(), packet.data(), packet.size(), MSG_NOSIGNAL) >= 0) return;
  throw ChildFailed(reap(1) ? ending() : name_ + " takes no commands");
}

void Process::nudge() { send(0, {}); }

void Process::receive(void* result, size_t size, int seconds) {
  pollfd waiting{channel_.get(), POLLIN, 0};
  const Deadline deadline = Deadline::in(seconds * kSecond);
  int ready = 0;
  do {
    ready = ::poll(&waiting, 1, static_cast<int>(deadline.left() / kMilli));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) throw ChildFailed(name_ + " did not answer in time");
  std::vector<std::byte> packet(size + 1);  // a longer answer shows
  const ssize_t got = ::recv(channel_.get(), packet.data(), packet.size(), 0);
  if (got <= 0) throw ChildFailed(reap(5) ? ending() : name_ + " closed its channel");
  if (size != 0) {
    if (static_cast<size_t>(got) != size) throw ChildFailed(name_ + " answered nonsense");
    std::memcpy(result, packet.data(), size);
  }
}

// ---- Cluster --------------------------------------------------------------------------------

void Cluster::open() {}
void Cluster::close() {}

Process& Cluster::spawn_bare(const std::string& node, const Env& env) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw ChildFailed("no socket pair");
  }
  Fd ours(ends[0]);
  Fd theirs(ends[1]);
  const auto place = places_.find(node);
  const int network = place == places_.end() ? -1 : place->second.network.get();
  const Env all = environment_of(node, env);
  load_fabric();
  std::fflush(nullptr);  // or the child writes it once more
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw ChildFailed("fork failed");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // 0: the parent is outside of the pid namespace that this process is the first of.
    if (const pid_t of = ::getppid(); of != parent && of != 0) ::_exit(126);
    if (network >= 0 && ::setns(network, CLONE_NEWNET) != 0) ::_exit(125);
    g_channel = theirs.get();
    forget_parent(g_channel, all);
    shift_mappings();
    serve_on_own_stack();
  }
  nodes_.push_back(node);
  pids_.insert(pid);
  processes_.push_back(std::make_unique<Process>(node, pid, std::move(ours)));
  return *processes_.back();
}

}  // namespace cmi::test
