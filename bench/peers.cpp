// Compiling, running and reading of bench/peers/rma.c.
#include "peers.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "control.hpp"

namespace bench {

namespace {

constexpr int kCompileSeconds = 30, kRunSeconds = 40;

using Words = std::vector<std::string>;

struct Stack {
  const char* id;
  const char* name;
  const char* transport;
  const char* compiler;
  const char* launcher;
  Words options;
  std::vector<std::pair<const char*, const char*>> environment;
};

// Each is kept to tcp: by default they would use shared memory between processes of one machine.
const std::vector<Stack>& stacks() {
  static const Words open_mpi{"-n",    "2",   "--oversubscribe", "--bind-to", "none",
                              "--mca", "plm", "isolated"};
  const auto with = [](Words more) {
    Words all = open_mpi;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  static const std::vector<Stack> all{
      {"openmpi",
       "Open MPI",
       "its own tcp (ob1, pt2pt)",
       "mpicc.openmpi",
       "mpirun.openmpi",
       with({"--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "osc", "pt2pt", "--mca",
             "btl_tcp_if_include", "lo"}),
       {}},
      {"openmpi_ucx",
       "Open MPI",
       "tcp of UCX",
       "mpicc.openmpi",
       "mpirun.openmpi",
       with({"--mca", "pml", "ucx", "--mca", "osc", "ucx", "--mca", "pml_ucx_tls", "any", "--mca",
             "pml_ucx_devices", "any"}),
       {{"UCX_TLS", "tcp,self"}, {"UCX_NET_DEVICES", "lo"}}},
      {"mpich",
       "MPICH",
       "tcp of UCX",
       "mpicc.mpich",
       "mpirun.mpich",
       {"-n", "2"},
       {{"UCX_TLS", "tcp,self"}, {"UCX_NET_DEVICES", "lo"}, {"MPIR_CVAR_NOLOCAL", "1"}}},
  };
  static_assert(kPeerStacks == 3);
  return all;
}

bool installed(const char* program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

struct Ended {
  bool good = false, in_time = true;
  std::string output;  // of both kinds
};

// Runs the program in a process group of its own, which is gone when this returns. Should this
// process be killed, the program gets SIGTERM, and takes its ranks along.
Ended run(const Words& command, const Stack& stack, const std::string& folder, int seconds) {
  int ends[2];
  must(pipe2(ends, O_CLOEXEC) == 0, "no pipe");
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = fork();
  must(pid >= 0, "cannot start a process");
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, 0);
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    setenv("TMPDIR", folder.c_str(), 1);
    if (geteuid() == 0) {
      setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
      setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    for (auto& [name, value] : stack.environment) setenv(name, value, 1);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  setpgid(pid, pid);
  close(ends[1]);
  Ended ended;
  const double give_up = now() + seconds * kSecond;
  for (char buffer[4096];;) {
    const double left = give_up - now();
    if (left <= 0) {
      ended.in_time = false;
      break;
    }
    pollfd readable{ends[0], POLLIN, 0};
    if (poll(&readable, 1, static_cast<int>(left / kMilli) + 1) <= 0) continue;
    const ssize_t n = read(ends[0], buffer, sizeof buffer);
    if (n <= 0) break;
    ended.output.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  if (!ended.in_time) {
    kill(-pid, SIGTERM);
    for (int i = 0; i < 20 && waitpid(pid, nullptr, WNOHANG | WNOWAIT) == 0; ++i) {
      sleep_for(100 * kMilli);
    }
    kill(-pid, SIGKILL);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  kill(-pid, SIGKILL);  // whoever of the group is left
  ended.good = ended.in_time && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return ended;
}

template <size_t N>
void set(char (&to)[N], const std::string& text) {
  std::snprintf(to, N, "%s", text.c_str());
}

std::string last_line(const std::string& output) {
  std::istringstream lines(output);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.find_first_not_of(" -\t") != std::string::npos) last = line;
  }
  return last;
}

// Fails unless all of it is there and went over the loopback interface.
void take_in(const std::string& output, PeerStack* to) {
  std::istringstream lines(output);
  double measured = 0, carried = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind, row, unit;
    words >> kind;
    if (kind == "version") {
      set(to->name, line.substr(kind.size() + 1));
    } else if (kind == "bytes") {
      words >> measured >> carried;
    } else if (kind == "row" && to->figure_count < std::size(to->figures)) {
      PeerFigure f{};
      words >> row >> unit >> f.low >> f.median >> f.high >> f.count;
      must(!words.fail() && f.median > 0, "a line that cannot be read: " + line);
      set(f.row, row);
      set(f.unit, unit);
      to->figures[to->figure_count++] = f;
    }
  }
  must(to->figure_count == std::size(to->figures) && measured > 0, "rows are missing");
  must(carried >= measured, "it did not go over the loopback interface");
}

void run_stack(const Stack& stack, PeerStack* to, const std::string& folder,
               const Words& arguments) {
  for (const char* program : {stack.compiler, stack.launcher}) {
    must(installed(program), std::string(program) + " is not installed");
  }
  const std::string binary = folder + "/rma." + stack.id;
  const Ended compiled = run({stack.compiler, "-O2", "-o", binary, CMI_BENCH_PEERS "/rma.c"}, stack,
                             folder, kCompileSeconds);
  must(compiled.good, "rma.c is not compiled: " + last_line(compiled.output));
  Words command{stack.launcher};
  command.insert(command.end(), stack.options.begin(), stack.options.end());
  command.push_back(binary);
  command.insert(command.end(), arguments.begin(), arguments.end());
  const Ended ended = run(command, stack, folder, kRunSeconds);
  must(ended.in_time, "no end within " + std::to_string(kRunSeconds) + " s");
  must(ended.good, "it failed: " + last_line(ended.output));
  take_in(ended.output, to);
}

}  // namespace

void run_peers(Control& control, const std::string& folder, bool quick, int home_cpu,
               int peer_cpu) {
  const Words arguments{std::to_string(kRunSeconds), quick ? "1" : "0", std::to_string(home_cpu),
                        std::to_string(peer_cpu)};
  for (int i = 0; i < kPeerStacks; ++i) {
    const Stack& stack = stacks()[static_cast<size_t>(i)];
    PeerStack& to = control.peers[i];
    to = {};
    set(to.id, stack.id);
    set(to.name, stack.name);
    set(to.transport, stack.transport);
    try {
      run_stack(stack, &to, folder, arguments);
    } catch (const Failure& e) {
      set(to.skipped, e.what());
    }
  }
}

}  // namespace bench
