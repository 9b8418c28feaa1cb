// What clusters of processes and of simulated nodes have in common: their folders, and their ends.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "system/calls.hpp"
#include "system/litter.hpp"
#include "system/nodes.hpp"

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

std::string describe_status(int status) {
  if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
  return "exit status " + std::to_string(WEXITSTATUS(status));
}

bool died_by(int status, int signal_number) {
  return WIFSIGNALED(status) && WTERMSIG(status) == signal_number;
}

Cluster::Cluster() : litter_(std::make_unique<Litter>()) {
  char name[] = "/dev/shm/cmi-test-XXXXXX";
  if (::mkdtemp(name) == nullptr) throw ChildFailed("no temporary folder");
  scratch_ = name;
  runtime_folder_ = scratch_ + "/run";
  ::mkdir(runtime_folder_.c_str(), 0700);
  open();
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
  processes_.clear();
  close();
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

Env Cluster::environment_of(const std::string& node, const Env& env) const {
  // The nodes of a test are on one machine, and most tests are about the network between them.
  Env all{{"CMI_RUNTIME_DIR", runtime_folder_}, {"CMI_NODE", node}, {"CMI_LOCAL", "off"}};
  for (const char* name : {"PROVIDER", "ADDRESS", "KERNEL", "FAULT", "LOCAL"}) {
    const std::string end(name);
    if (const char* value = std::getenv(("CMI_TEST_" + end).c_str())) {
      // CMI_TEST_LOCAL alone has a third value: every second node maps pages, and the others cache.
      const bool mixed = std::strcmp(value, "mixed") == 0;
      all.emplace_back("CMI_" + end, !mixed ? value : node.back() % 2 == 0 ? "on" : "off");
    }
  }
  const auto place = places_.find(node);
  if (place != places_.end() && place->second.network) {
    all.insert(all.end(), place->second.env.begin(), place->second.env.end());
  }
  all.insert(all.end(), env.begin(), env.end());
  return all;
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
