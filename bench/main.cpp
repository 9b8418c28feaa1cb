// cmi_bench: measures the library beside raw libfabric, between the same two processes and in turn.
// This file has the supervisor: it starts the processes, bounds their time and
// removes what they leave, whatever happens. It uses neither the library nor libfabric itself.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>

#include "cases.hpp"
#include "check.hpp"
#include "crew.hpp"
#include "options.hpp"
#include "worker.hpp"

namespace bench {

namespace {

constexpr int kImpossibleHere = 3;  // of --check

// Where each process runs: the first two have a CPU each where there are two, the others the rest,
// from the last CPU on and the home's last, whether or not there are enough. Left to the kernel,
// those that share would be together with the home in one block and with the publisher in the next:
// a row and its floor would differ by where they ran. -1: the kernel's choice.
struct Placement {
  int cpu[kRoles];
  bool others_share;
  std::vector<int> peer_threads;  // for the measuring process's threads; empty: any
};
Placement place() {
  const auto cpus = allowed_cpus();
  Placement p{};
  const size_t n = cpus.size();
  for (int role = 0; role < kRoles; ++role) {
    const auto at = static_cast<size_t>(role < kOther1 ? role : role - kOther1);
    p.cpu[role] = n < 2 || role == kCrew ? -1 : cpus[role < kOther1 ? at : n - 1 - at % n];
  }
  p.others_share = cpus.size() < kCrew;
  if (cpus.size() >= 2) p.peer_threads.assign(cpus.begin() + 1, cpus.end());
  return p;
}

// Until the other processes can be measured against.
void await_others(Control& control) {
  for (int role = 0; role < kRoles; ++role) {
    const double give_up = now() + 30 * kSecond;
    while (role != kPeer && control.ready[role].load() == 0) {
      must(now() < give_up, std::string(role_name(role)) + " does not start");
      futex_wait(control.ready[role], 0, 50 * kMilli);
    }
  }
}

// The measuring process. 0: every case went well.
int run_peer(Control& control, const Options& o, const Placement& placement,
             const std::string& machine) {
  const std::string provider = choose_provider();
  const size_t raw_size = o.quick ? kReadSeqBytesQuick : kReadSeqBytes;
  const PlainMemory buffer(raw_size);
  await_others(control);
  RawEndpoint endpoint(provider, nullptr, 0, false);
  RawEndpoint fetching(provider, nullptr, 0, false, 0);
  RawTarget self;
  endpoint.describe(&self);
  control.peer_address = self.address;
  fetching.describe(&self);
  control.fetching_address = self.address;
  call(control, kHome, Command::kConnectRaw);
  const Raw raw{endpoint,
                endpoint.add_peer(control.polling.address),
                endpoint.add_peer(control.sleeping.address),
                fetching,
                fetching.add_peer(control.polling.address),
                control.polling,
                control.sleeping,
                buffer.at,
                buffer.size,
                provider};
  {
    const RawServing serving(control, RawMode::kPoll);
    endpoint.ping(raw.polling_peer);
  }
  Node node(role_name(kPeer), provider);
  Report report(control, provider,
                o.check ? "" : o.json);  // --check writes the medians of its runs
  const std::string where =
      placement.cpu[kHome] < 0
          ? "one CPU, where two that poll keep each other waiting: RATIOS MEAN NOTHING"
          : fmt::format("home on CPU {}, peer on CPU {}, other importers on CPU {}, {} and {}",
                        placement.cpu[kHome], placement.cpu[kPeer], placement.cpu[kOther1],
                        placement.cpu[kOther1 + 1], placement.cpu[kOther1 + 2]);
  report.header(fmt::format("{}\nlibfabric {}, provider {}; {}{}", machine, libfabric_version(),
                            provider, where, o.quick ? "; quick: fewer samples" : ""));
  Bench b{
      control, node, raw, report, o.quick, o.longest, placement.peer_threads, placement.cpu[kHome]};
  bool good = true;
  for (const Case& c : all_cases()) {
    if (!wanted(o, c)) continue;
    try {
      c.run(b);
    } catch (const std::exception& e) {
      report.failed(c.name, e.what());
      good = false;
    }
  }
  report.footer();
  for (int role = 0; role < kRoles; ++role) {
    if (role != kPeer) call(control, role, Command::kQuit);
  }
  return good ? 0 : 1;
}

int run_process(int role, Control& control, const Options& o, const Placement& placement,
                const std::string& machine) {
  try {
    pin_to(placement.cpu[role]);
    const size_t raw_size = o.quick ? kReadSeqBytesQuick : kReadSeqBytes;
    switch (role) {
      case kHome:
        run_home(control, choose_provider(), raw_size);
        return 0;
      case kPeer:
        return run_peer(control, o, placement, machine);
      case kCrew:
        run_crew(control, choose_provider());
        return 0;
      default:
        run_other(control, role, choose_provider(), placement.others_share);
        return 0;
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "cmi_bench: {}: {}\n", role_name(role), e.what());
    return 1;
  }
}

// A folder private to this run, below the first of these that takes one.
class Folder {
 public:
  explicit Folder(std::initializer_list<const char*> bases) {
    for (const char* base : bases) {
      std::string path = std::string(base) + "/cmi-bench.XXXXXX";
      if (access(base, W_OK) == 0 && mkdtemp(path.data()) != nullptr) {
        path_ = path;
        return;
      }
    }
    fail("no place for a folder");
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The processes, killed and reaped at the end in any case.
struct Children {
  pid_t pids[kRoles] = {};
  int left() const {
    return static_cast<int>(std::count_if(pids, pids + kRoles, [](pid_t p) { return p > 0; }));
  }
  ~Children() {
    for (pid_t p : pids) {
      if (p > 0) kill(p, SIGKILL);
    }
    for (pid_t p : pids) {
      if (p > 0) waitpid(p, nullptr, 0);
    }
  }
};

// Reaps who has ended. False: one ended badly.
bool reap(Children& children, int* peer_status) {
  bool good = true;
  for (int role = 0; role < kRoles; ++role) {
    pid_t& pid = children.pids[role];
    int status = 0;
    if (pid <= 0 || waitpid(pid, &status, WNOHANG) != pid) continue;
    pid = 0;
    if (role == kPeer && WIFEXITED(status)) *peer_status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) {
      fmt::print(stderr, "cmi_bench: {} was ended by signal {} ({})\n", role_name(role),
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
    good = good && WIFEXITED(status) && (WEXITSTATUS(status) == 0 || role == kPeer);
  }
  return good;
}

// Starts a child that runs f and ends with its result; it does not outlive the supervisor.
template <class F>
pid_t start(const sigset_t& signals, F f) {
  const pid_t self = getpid(), pid = fork();
  must(pid >= 0, "cannot start a process");
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != self) _exit(1);
  signal(SIGINT, SIG_IGN);  // of the terminal: the supervisor ends us
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  const int status = f();
  std::fflush(nullptr);
  _exit(status);  // past destructors of the parent's objects
}

// Until all have ended, one has ended badly, the time is over or a signal says so; the status to
// end with.
int watch(Children& children, const sigset_t& watched, const Options& o, double give_up) {
  int peer_status = children.pids[kPeer] > 0 ? 1 : 0;
  while (children.left() > 0) {
    if (!reap(children, &peer_status)) return 1;
    if (children.left() == 0) break;
    if (children.pids[kPeer] == 0 && peer_status != 0) return peer_status;
    if (now() > give_up) {
      fmt::print(stderr, "cmi_bench: stopped after {} s\n", o.seconds);
      return 124;
    }
    const timespec tick{0, 200'000'000};
    const int s = sigtimedwait(&watched, nullptr, &tick);
    if (s > 0 && s != SIGCHLD) return 128 + s;
  }
  return peer_status;
}

// The memory that the processes of a run share.
class SharedControl {
 public:
  SharedControl() {
    void* memory =
        mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(memory != MAP_FAILED, "no memory");
    control_ = new (memory) Control;
  }
  ~SharedControl() { munmap(control_, sizeof(Control)); }
  SharedControl(const SharedControl&) = delete;
  SharedControl& operator=(const SharedControl&) = delete;
  Control& operator*() const { return *control_; }

 private:
  Control* control_;
};

// One sitting; what it measured goes to `outcomes`.
int supervise(const Options& o, double give_up, const sigset_t& watched, const sigset_t& before,
              std::vector<Outcome>* outcomes) {
  const std::string machine = machine_line();
  const Placement placement = place();
  const Folder runtime{"/dev/shm", "/tmp"}, scratch{"/tmp", "/var/tmp"};
  setenv("CMI_RUNTIME_DIR", runtime.path().c_str(), 1);
  setenv("CMI_LOCAL", o.mapped ? "on" : "off", 1);
  setenv("CMI_MEM_MAX", "64G", 1);  // an import counts in whole, however little of it is there
  const SharedControl control;

  const auto& cases = all_cases();
  if (std::any_of(cases.begin(), cases.end(),
                  [&](auto& c) { return c.run == peers && wanted(o, c); })) {
    Children children;
    children.pids[kHome] = start(before, [&] {
      run_peers(*control, scratch.path(), o.quick, placement.cpu[kHome], placement.cpu[kPeer]);
      return 0;
    });
    if (const int status = watch(children, watched, o, give_up); status != 0) return status;
  }
  Children children;
  for (int role = 0; role < kRoles; ++role) {
    children.pids[role] =
        start(before, [&] { return run_process(role, *control, o, placement, machine); });
  }
  const int status = watch(children, watched, o, give_up);
  const auto measured = outcomes_of(*control);
  outcomes->insert(outcomes->end(), measured.begin(), measured.end());
  return status;
}

int run(const Options& o) {
  sigset_t watched, before;
  sigemptyset(&watched);
  for (int s : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&watched, s);
  sigprocmask(SIG_BLOCK, &watched, &before);
  const double give_up = now() + o.seconds * kSecond;
  std::vector<std::vector<Outcome>> sittings(o.check ? kRuns * kSittings : 1);
  for (auto& outcomes : sittings) {
    Options sitting = o;
    sitting.longest = !o.quick && &outcomes == &sittings.front();
    for (const bool mapped : {false, true}) {
      sitting.mapped = mapped;
      if (std::none_of(all_cases().begin(), all_cases().end(),
                       [&](const Case& c) { return wanted(sitting, c); })) {
        continue;
      }
      if (const int status = supervise(sitting, give_up, watched, before, &outcomes); status != 0)
        return status;
    }
  }
  if (o.check && !o.json.empty()) write_json(o.json, sittings);
  if (!o.check) return 0;
  switch (check(sittings)) {
    case Verdict::kMet:
      return 0;
    case Verdict::kImpossible:
      return kImpossibleHere;
    case Verdict::kMissed:
      break;
  }
  return 1;
}

}  // namespace

}  // namespace bench

int main(int argc, char** argv) {
  using namespace bench;
  Options o;
  if (const auto status = parse(argc, argv, &o)) return *status;
  // Debian's libfabric comes with a library that takes over signals unless told not to.
  setenv("IPATH_NO_BACKTRACE", "1", 1);
  setenv("HFI_NO_BACKTRACE", "1", 1);
  for (const char* v : {"CMI_NODE", "CMI_ADDRESS", "CMI_TRACE", "CMI_TRACE_FILE"}) unsetenv(v);
  if (!o.json.empty()) std::remove(o.json.c_str());
  try {
    return run(o);
  } catch (const std::exception& e) {
    fmt::print(stderr, "cmi_bench: {}\n", e.what());
    return 1;
  }
}
