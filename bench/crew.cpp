// Starting, stepping and ending of the members.
#include "crew.hpp"

#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "node.hpp"
#include "worker.hpp"

namespace bench {

namespace {

constexpr double kStartWithin = 60 * kSecond, kStepWithin = 60 * kSecond;

// Segments of TCP with data that this process has sent over the connections that it has.
uint64_t segments_sent() {
  uint64_t sent = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    tcp_info info{};
    socklen_t size = sizeof info;
    const int fd = std::atoi(entry.path().filename().c_str());
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) sent += info.tcpi_data_segs_out;
  }
  return sent;
}

void await_step(Control& control, uint32_t step) {
  for (uint32_t now_at; (now_at = control.crew_step.load()) < step;) {
    futex_wait(control.crew_step, now_at, 100 * kMilli);
  }
}

// Messages that were waited for: pages, dirty intents, stores, swaps. A swap that took stores along
// is one message, and counts as two in the library's statistics: the work leaves it out.
uint64_t requests(const Stats& s) {
  return s.load_misses + s.store_misses + s.intents_asked + s.publications + s.cas_calls;
}

void serve(Control& control, const std::string& provider, const Mailbox& m, size_t self) {
  CrewMember& results = control.crew[self];
  Node node("crew" + std::to_string(self), provider);
  const Imported import(node, control);
  const auto work = make_work(
      static_cast<CrewJob>(m.args[0]),
      {node, import, self, m.args[1], m.args[2], results, control.crew[(self + 1) % m.args[1]]});
  work->prepare();
  results.step.store(kReady);
  await_step(control, kReady);
  results.requests = 0;
  const Stats before = node.stats();
  const uint64_t segments = segments_sent(), alerts = node.alerts();
  work->work();
  results.step.store(kWorked);
  await_step(control, kWorked);
  work->finish();
  results.step.store(kFinished);
  await_step(control, kFinished);
  const Stats after = node.stats();
  must(node.alerts() == alerts, "the library complained");
  results.misses =
      after.load_misses + after.store_misses - before.load_misses - before.store_misses;
  results.requests = requests(after) - requests(before) - results.requests;
  results.publications = after.publications - before.publications;
  results.notifications = after.invalidations_received - before.invalidations_received;
  results.useless = after.invalidations_useless - before.invalidations_useless;
  results.segments = segments_sent() - segments;
}

// In the child.
[[noreturn]] void be_member(Control& control, const std::string& provider, const Mailbox& m,
                            size_t self) {
  CrewMember& results = control.crew[self];
  try {
    serve(control, provider, m, self);
  } catch (const std::exception& e) {
    std::snprintf(results.error, sizeof results.error, "%s", e.what());
    results.step.store(kFailed);
  }
  std::fflush(nullptr);
  _exit(results.error[0] != 0 ? 1 : 0);
}

// The thread of a member that has the library's timer does not run while this lives. It must be
// idle then: it is stopped wherever it is.
class Stopped {
 public:
  explicit Stopped(pid_t process) : thread_(find(process)) {
    must(ptrace(PTRACE_SEIZE, thread_, nullptr, nullptr) == 0 &&
             ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr) == 0,
         "the library's thread cannot be stopped here");
    const double give_up = now() + 10 * kSecond;
    while (waitpid(thread_, nullptr, __WALL | WNOHANG) != thread_) {
      must(now() < give_up, "the library's thread does not stop");
      sleep_for(kMilli);
    }
  }
  ~Stopped() { ptrace(PTRACE_DETACH, thread_, nullptr, nullptr); }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;

 private:
  static pid_t find(pid_t process) {
    const std::string tasks = "/proc/" + std::to_string(process) + "/task";
    for (const auto& entry : std::filesystem::directory_iterator(tasks)) {
      std::ifstream name(entry.path() / "comm");
      std::string line;
      if (std::getline(name, line) && line == "cmi-service") {
        return std::atoi(entry.path().filename().c_str());
      }
    }
    fail("the library has no thread of the name cmi-service");
  }
  const pid_t thread_;
};

class Crew {
 public:
  Crew(Control& control, const std::string& provider, const Mailbox& m)
      : control_(control), without_timer_(m.args[3] != 0), pids_(m.args[1]) {
    must(pids_.size() >= 1 && pids_.size() <= kCrewMost, "no such crew");
    control.crew_step.store(kStarting);
    const pid_t parent = getpid();
    for (size_t i = 0; i < pids_.size(); ++i) {
      CrewMember& c = control.crew[i];
      c.step.store(kStarting);
      c.turn.store(0);
      c.operations = c.last = c.misses = c.requests = c.publications = c.notifications = c.useless =
          c.segments = 0;
      c.nanos = 0;
      c.error[0] = 0;
      pids_[i] = fork();
      must(pids_[i] >= 0, "cannot start a process");
      if (pids_[i] > 0) continue;
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      be_member(control, provider, m, i);
    }
  }
  ~Crew() {
    for (pid_t p : pids_) {
      if (p > 0) kill(p, SIGKILL);
    }
    for (pid_t p : pids_) {
      if (p > 0) waitpid(p, nullptr, 0);
    }
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  pid_t pid(size_t member) const { return pids_[member]; }
  // Until all members are there.
  void await(uint32_t step, double within) {
    const double give_up = now() + within;
    for (size_t i = 0; i < pids_.size();) {
      const uint32_t at = control_.crew[i].step.load();
      if (at >= step && at != kFailed) {
        ++i;
        continue;
      }
      reap(false);
      must(now() < give_up, "member " + std::to_string(i) + " of the crew takes longer than " +
                                std::to_string(static_cast<int>(within / kSecond)) + " s" +
                                (without_timer_ ? ", without a timer" : ""));
      sleep_for(2 * kMilli);
    }
  }
  void let(uint32_t step) {
    control_.crew_step.store(step);
    futex_wake(control_.crew_step);
  }
  void await_end(double within) {
    const double give_up = now() + within;
    while (!reap(true)) {
      must(now() < give_up, "a member of the crew does not end");
      sleep_for(2 * kMilli);
    }
  }

 private:
  // Fails for a member that failed, and for one that has ended unless that may be. True: all have.
  bool reap(bool may_end) {
    bool all = true;
    for (size_t i = 0; i < pids_.size(); ++i) {
      int status = 0;
      if (pids_[i] > 0 && waitpid(pids_[i], &status, WNOHANG) == pids_[i]) {
        pids_[i] = 0;
        const std::string who = "member " + std::to_string(i) + " of the crew ";
        must(control_.crew[i].error[0] == 0, who + "failed: " + control_.crew[i].error);
        must(WIFEXITED(status), who + "was ended by signal " + std::to_string(WTERMSIG(status)));
        must(may_end && WEXITSTATUS(status) == 0, who + "ended too early");
      }
      all = all && pids_[i] == 0;
    }
    return all;
  }

  Control& control_;
  const bool without_timer_;
  std::vector<pid_t> pids_;
};

void work(Control& control, const std::string& provider, const Mailbox& m) {
  const auto job = static_cast<CrewJob>(m.args[0]);
  const bool without_timer = m.args[3] != 0;
  Crew crew(control, provider, m);
  crew.await(kReady, kStartWithin);
  {
    std::vector<std::unique_ptr<Stopped>> stopped;
    if (without_timer) {
      sleep_for(50 * kMilli);  // what has nothing to do sleeps by then
      for (size_t i = 0; i < m.args[1]; ++i) {
        stopped.push_back(std::make_unique<Stopped>(crew.pid(i)));
      }
    }
    crew.let(kReady);
    const double asked_for = job == CrewJob::kCrowd || job == CrewJob::kTurns
                                 ? static_cast<double>(m.args[2]) * kMilli
                                 : 0;
    crew.await(kWorked, kStepWithin + asked_for);
  }
  crew.let(kWorked);
  crew.await(kFinished, kStepWithin);
  crew.let(kFinished);
  crew.await_end(kStepWithin);
}

}  // namespace

void run_crew(Control& control, const std::string& provider) {
  command_loop(control, kCrew, [&](Mailbox& m) {
    must(m.command == Command::kWork, "not a command for the crew");
    work(control, provider, m);
  });
}

}  // namespace bench
