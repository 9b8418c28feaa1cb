// Input, processes and output of one word count.
#include "fault/word_count.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include "core/base/clock.hpp"

extern char** environ;

namespace cmi::test {

namespace {

constexpr int kTimeout =
    25;  // the program's own bound, which a run that ends as it must never sees
constexpr size_t kShown = 20;  // the program shows so many of the most frequent words

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (!(file << text << std::flush)) throw ChildFailed("cannot write " + path);
}

}  // namespace

KnownText known_text() {
  // 1.2 MiB: the home alone takes some 100 ms for it, in which the others get their share.
  constexpr size_t kRare = 400, kRareTimes = 7, kStep = 400, kLeast = 800;
  // The most frequent word stands in each round, the others in the first so many of them; rare ones
  // all along, so that the nodes meet over them.
  constexpr size_t kRounds = kLeast + kShown * kStep, kApart = kRounds / kRareTimes;
  KnownText known{{}, kShown + kRare, {}};
  const auto times = [](size_t i) { return kLeast + (kShown - i) * kStep; };
  const auto frequent = [](size_t i) {
    return "frequent_" + std::string(1, static_cast<char>('a' + i));
  };
  for (size_t i = 0; i < kShown; ++i) {
    char line[64];
    std::snprintf(line, sizeof line, "%10zu  %s", times(i), frequent(i).c_str());
    known.most.emplace_back(line);
  }
  for (size_t round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < kShown && round < times(i); ++i) known.text += frequent(i) + ' ';
    if (round < kApart * kRareTimes) {
      for (size_t i = round % kApart; i < kRare; i += kApart) {
        known.text += "rare" + std::to_string(i) + ' ';
      }
    }
    known.text += '\n';
  }
  return known;
}

bool WordCount::Part::killed() const { return started && died_by(status, SIGKILL); }
bool WordCount::Part::exited(int with) const {
  return started && WIFEXITED(status) && WEXITSTATUS(status) == with;
}

void WordCount::start(const Cluster& cluster, Role role, const std::string& fault, const Env& env,
                      const std::vector<std::string>& arguments) {
  const std::string name = folder_ + "/" + kNodes[role];
  std::vector<std::string> strings;
  for (char** at = environ; *at != nullptr; ++at) {
    if (!std::string_view(*at).starts_with("CMI_")) strings.emplace_back(*at);
  }
  for (const char* end : {"PROVIDER", "ADDRESS", "KERNEL", "FAULT"}) {
    const char* value = std::getenv(("CMI_TEST_" + std::string(end)).c_str());
    if (value != nullptr) strings.push_back("CMI_" + std::string(end) + "=" + value);
  }
  for (const auto& [variable, value] : env) strings.push_back(variable + "=" + value);
  strings.push_back("CMI_RUNTIME_DIR=" + cluster.runtime_folder());
  strings.push_back(std::string("CMI_NODE=") + kNodes[role]);
  strings.push_back("CMI_FAULT_POINT=" + fault);
  strings.push_back("CMI_FAULT_COUNT=" + name + ".passages");
  std::vector<std::string> words{"wordcount"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> environment, argv;
  for (std::string& s : strings) environment.push_back(s.data());
  environment.push_back(nullptr);
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  const std::string said = name + ".output";

  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw ChildFailed("fork failed");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(126);
    const int out = ::open(said.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(out, 1);
    ::dup2(out, 2);
    ::close(out);
    ::execve(CMI_WORDCOUNT_PROGRAM, argv.data(), environment.data());
    ::_exit(127);
  }
  parts_[role].pid = pid;
  parts_[role].started = true;
}

void WordCount::end_all() {
  for (Part& part : parts_) {
    if (part.pid < 0) continue;
    ::kill(part.pid, SIGKILL);
    while (::waitpid(part.pid, &part.status, 0) < 0 && errno == EINTR) {
    }
    part.pid = -1;
  }
}

WordCount::WordCount(const Cluster& cluster, const KnownText& input, Role victim,
                     const std::string& fault, const Env& env) {
  static int runs = 0;
  folder_ = cluster.scratch() + "/count" + std::to_string(++runs);
  ::mkdir(folder_.c_str(), 0700);
  const std::string text = folder_ + "/text", address = folder_ + "/address";
  write(text, input.text);
  const std::string timeout = std::to_string(kTimeout);
  const Deadline deadline = Deadline::in((kTimeout + 10) * kSecond);
  // Takes note of who has ended; false while one runs.
  const auto reap = [&] {
    bool all = true;
    for (Part& part : parts_) {
      if (part.pid >= 0 && ::waitpid(part.pid, &part.status, WNOHANG) == part.pid) part.pid = -1;
      all = all && part.pid < 0;
    }
    return all;
  };
  const auto of = [&](Role role) { return role == victim ? fault : std::string(); };
  start(cluster, kHome, of(kHome), env,
        {"home", "--listen", "127.0.0.1:0", "--nodes", "3", "--announce", address, "--timeout",
         timeout, text});
  bool over = false, nodes = false;
  while (!over && !deadline.passed()) {
    // A home that has ended before it listens leaves nothing to join.
    if (!nodes && ::access(address.c_str(), F_OK) == 0) {
      std::string at = contents(address);
      at.erase(std::find(at.begin(), at.end(), '\n'), at.end());
      for (Role role : {kPeer, kThird}) {
        start(cluster, role, of(role), env, {"node", "--connect", at, "--timeout", timeout});
      }
      nodes = true;
    }
    over = reap();
    if (!over) ::usleep(1000);
  }
  end_all();
  for (Role role : {kHome, kPeer, kThird}) {
    const std::string name = folder_ + "/" + kNodes[role];
    parts_[role].output = contents(name + ".output");
    parts_[role].passages = read_passages(name + ".passages");
  }
  if (!over) throw ChildFailed("the word count has not ended in time; it said:\n" + all_said());
}

bool WordCount::shows_the_counts(const KnownText& input) const {
  const Part& home = parts_[kHome];
  for (const std::string& line : input.most) {
    if (!home.says("\n" + line + "\n")) return false;
  }
  const std::string words = std::to_string(input.words);
  return home.says("\ncompared " + words + " entries with " + words +
                   " of a count in one process: 0 differences\n") &&
         home.says("\nidentical: yes\n");
}

std::string WordCount::all_said() const {
  std::string all;
  for (Role role : {kHome, kPeer, kThird}) {
    const Part& part = parts_[role];
    all += std::string(kNodes[role]) + ": " +
           (part.started ? describe_status(part.status) : "never started") + "\n" + part.output;
  }
  return all;
}

}  // namespace cmi::test
