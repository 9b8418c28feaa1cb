// Starting, commanding and ending the processes of a test, and the loop that they run.
#include "system/nodes.hpp"

#include <cmi.h>
#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "core/base/clock.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/guard.hpp"
#include "system/litter.hpp"

extern char** environ;

// libfabric's own leaks; unused without the leak sanitizer.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libfabric.so\n"; }

namespace cmi::test {

bool fault_threads_possible() {
  Fd fault(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
  if (!fault) {
    const Fd device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
    fault.reset(device ? ::ioctl(device.get(), _IO(0xaa, 0), O_CLOEXEC | O_NONBLOCK) : -1);
  }
  struct {
    uint64_t api, features, ioctls;
  } wish{0xaa, 1 << 14, 0};  // UFFD_FEATURE_POISON
  return fault && ::ioctl(fault.get(), _IOWR(0xaa, 0x3f, wish), &wish) == 0;
}

bool kernel_notes_stores() {
  const char* told = std::getenv("CMI_TEST_KERNEL");
  int major = 0, minor = 0;
  if (told != nullptr && std::sscanf(told, "%d.%d", &major, &minor) == 2 &&
      std::pair(major, minor) < std::pair(6, 7)) {
    return false;
  }
  constexpr size_t kArgument = 96;  // of PAGEMAP_SCAN, which the headers of Debian 12 lack
  const Fd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  std::array<std::byte, kArgument> nonsense{};
  return ::ioctl(pagemap.get(), _IOWR('f', 16, nonsense), nonsense.data()) == 0 || errno == EINVAL;
}

namespace {

constexpr const char* kChildVariable = "CMI_TEST_CHANNEL";

struct Header {
  uint64_t offset = 0;  // of the thunk; 0: nothing to run, see finish()
  uint64_t size = 0;    // bytes that follow in the same packet
};

size_t anchor(const std::byte*, std::byte*) { return 0; }

int g_channel = -1;  // in a child: its end of the socket pair

[[noreturn]] void serve() {
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

// Takes over before any case runs when the program was started as a child.
class ChildMain : public doctest::IReporter {
 public:
  explicit ChildMain(const doctest::ContextOptions& /*options*/) {}
  void test_run_start() override {
    const char* channel = std::getenv(kChildVariable);
    if (channel == nullptr) {
      const char* fault = std::getenv("CMI_TEST_FAULT");
      if (fault != nullptr && std::strcmp(fault, "thread") == 0 && !fault_threads_possible()) {
        std::puts("SKIPPED: no userfaultfd for the faults of system calls, or a kernel before 6.6");
        std::exit(kSkippedStatus);
      }
      return;
    }
    g_channel = std::atoi(channel);
    ::fcntl(g_channel, F_SETFD, FD_CLOEXEC);
    ::unsetenv(kChildVariable);
    serve();
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
REGISTER_LISTENER("child_main", 0, ChildMain);

// The environment of a child as "NAME=value" strings; later entries win.
std::vector<std::string> child_environment(const Env& added) {
  std::vector<std::string> all;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string entry(*at);
    if (!entry.starts_with("CMI_") || entry.starts_with("CMI_TRACE")) all.push_back(entry);
  }
  for (const auto& variable : added) {
    const std::string start = variable.first + "=";
    std::erase_if(all, [&](const std::string& entry) { return entry.starts_with(start); });
    all.push_back(start + variable.second);
  }
  return all;
}

}  // namespace

uint64_t thunk_offset(Thunk thunk) {
  return reinterpret_cast<uint64_t>(thunk) - reinterpret_cast<uint64_t>(&anchor);
}

bool called_back() {
  pollfd waiting{g_channel, POLLIN, 0};
  return ::poll(&waiting, 1, 0) != 0;
}

std::string describe_status(int status) {
  if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

bool died_by(int status, int signal_number) {
  return WIFSIGNALED(status) && WTERMSIG(status) == signal_number;
}

// ---- Process --------------------------------------------------------------------------------

namespace {
// Children of all clusters that there are.
std::set<pid_t>& living() {
  static std::set<pid_t> pids;
  return pids;
}
}  // namespace

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
  std::vector<std::byte> packet(kMaxMessage);
  const ssize_t got = ::recv(channel_.get(), packet.data(), packet.size(), 0);
  if (got <= 0) throw ChildFailed(reap(5) ? ending() : name_ + " closed its channel");
  if (size != 0) {
    if (static_cast<size_t>(got) != size) throw ChildFailed(name_ + " answered nonsense");
    std::memcpy(result, packet.data(), size);
  }
}

// ---- Cluster --------------------------------------------------------------------------------

Cluster::Cluster() : litter_(std::make_unique<Litter>()) {
  char name[] = "/dev/shm/cmi-test-XXXXXX";
  if (::mkdtemp(name) == nullptr) throw ChildFailed("no temporary folder");
  scratch_ = name;
  runtime_folder_ = scratch_ + "/run";
  ::mkdir(runtime_folder_.c_str(), 0700);
}

Cluster::~Cluster() {
  const bool judge = std::uncaught_exceptions() == 0;
  // Importers were started after their homes, and leave before them.
  for (auto at = processes_.rbegin(); at != processes_.rend(); ++at) {
    Process& process = **at;
    if (process.ended()) continue;
    try {
      const int status = process.end();
      if (judge) CHECK_MESSAGE(status == 0, process.name(), " ended: ", describe_status(status));
    } catch (const ChildFailed& failure) {
      if (judge) FAIL_CHECK(failure.what());
      process.kill();
    }
  }
  processes_.clear();
  if (judge && !files().empty()) {
    // What the killed left is cleaned up by the next context of their node.
    std::sort(nodes_.begin(), nodes_.end());
    nodes_.erase(std::unique(nodes_.begin(), nodes_.end()), nodes_.end());
    try {
      for (const std::string& node : std::vector<std::string>(nodes_)) spawn(node).end();
    } catch (const std::exception& failure) {
      FAIL_CHECK(failure.what());
    }
    const std::vector<std::string> left = files();
    CHECK_MESSAGE(left.empty(), "left in the runtime folder: ", left.empty() ? "" : left.front());
    processes_.clear();
  }
  if (judge) check_no_litter();
  std::error_code ignored;
  std::filesystem::remove_all(scratch_, ignored);
}

void Cluster::check_no_litter() const {
  const std::vector<std::string> shared = litter_->shared(pids_);
  CHECK_MESSAGE(shared.empty(), "left in shared memory: ", shared.empty() ? "" : shared.front());
  const std::set<pid_t> running = litter_->running(living());
  CHECK_MESSAGE(running.empty(), "left running: ", running.empty() ? 0 : *running.begin());
}

std::vector<std::string> Cluster::files() const {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(runtime_folder_, error), end;
       !error && at != end; at.increment(error)) {
    found.push_back(at->path().string());
  }
  return found;
}

Process& Cluster::spawn_bare(const std::string& node, const Env& env) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw ChildFailed("no socket pair");
  }
  Fd ours(ends[0]);
  Fd theirs(ends[1]);
  Env all{{"CMI_RUNTIME_DIR", runtime_folder_}, {"CMI_NODE", node}};
  for (const char* name : {"PROVIDER", "ADDRESS", "KERNEL", "FAULT", "LOCAL"}) {
    const std::string end(name);
    if (const char* value = std::getenv(("CMI_TEST_" + end).c_str())) {
      all.emplace_back("CMI_" + end, value);
    }
  }
  const auto place = places_.find(node);
  const int network = place == places_.end() ? -1 : place->second.network.get();
  if (network >= 0) all.insert(all.end(), place->second.env.begin(), place->second.env.end());
  all.insert(all.end(), env.begin(), env.end());
  all.emplace_back(kChildVariable, std::to_string(theirs.get()));
  std::vector<std::string> strings = child_environment(all);
  std::vector<char*> pointers;
  for (std::string& entry : strings) pointers.push_back(entry.data());
  pointers.push_back(nullptr);
  char program[] = "/proc/self/exe";
  char* arguments[] = {program, nullptr};

  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw ChildFailed("fork failed");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(126);
    if (network >= 0 && ::setns(network, CLONE_NEWNET) != 0) ::_exit(125);
    ::fcntl(theirs.get(), F_SETFD, 0);
    ::execve(program, arguments, pointers.data());
    ::_exit(127);
  }
  nodes_.push_back(node);
  pids_.insert(pid);
  processes_.push_back(std::make_unique<Process>(node, pid, std::move(ours)));
  return *processes_.back();
}

void Cluster::place(const std::string& node, Fd network, Env env) {
  places_[node] = {std::move(network), std::move(env)};
}

Process& Cluster::spawn(const std::string& node, const Env& env) {
  Process& process = spawn_bare(node, env);
  const Answer started = ini(process);
  REQUIRE_MESSAGE(started.ok(), "cmi_ini on ", node, " failed: ", started.error);
  return process;
}

}  // namespace cmi::test
