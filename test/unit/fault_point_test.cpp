// Fault points: parsing of the variable, and what a passage does.
#include "core/base/fault_point.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "support/passages.hpp"
#include "support/sleeps.hpp"

namespace cmi::test::fault_point_test {
using cmi::test::Passages;
using cmi::test::read_passages;

namespace {

constexpr const char* kVariable = "CMI_FAULT_POINT";

struct Armed {
  explicit Armed(const std::string& spec) {
    setenv(kVariable, spec.c_str(), 1);
    arm_fault_points();
  }
  ~Armed() {
    unsetenv(kVariable);
    arm_fault_points();
  }
};

bool armed() { return g_fault_points_armed.load(); }

std::vector<bool> passages(const char* name, int n) {
  std::vector<bool> failed;
  for (int i = 0; i < n; ++i) failed.push_back(fault_point_fails(name));
  return failed;
}

// How a process of its own ends that passes the point `name` so many times and then exits with 5.
int end_of_child(const char* name, int times) {
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < times; ++i) fault_point(name);
    _exit(5);
  }
  REQUIRE(pid > 0);
  int status = 0;
  const Deadline deadline = Deadline::in(10 * kSecond);
  pid_t ended = 0;
  while ((ended = waitpid(pid, &status, WNOHANG | WUNTRACED)) == 0 && !deadline.passed()) {
    usleep(1000);
  }
  if (ended == 0 || WIFSTOPPED(status)) {
    kill(pid, SIGKILL);
    int ignored;
    waitpid(pid, &ignored, 0);
  }
  REQUIRE(ended == pid);
  return status;
}

}  // namespace

TEST_CASE("without_the_variable_no_point_does_anything") {
  unsetenv(kVariable);
  arm_fault_points();
  CHECK_FALSE(armed());
  CHECK_FALSE(fault_point_fails("a"));
  fault_point("a");
}

TEST_CASE("a_point_that_fails_does_so_at_each_passage_and_no_other_point_does") {
  Armed a("first.write=fail");
  CHECK(armed());
  CHECK(passages("first.write", 3) == std::vector<bool>{true, true, true});
  CHECK(passages("first", 2) == std::vector<bool>{false, false});
  CHECK(passages("first.write.more", 2) == std::vector<bool>{false, false});
  fault_point("first.write");  // no action of its own
}

TEST_CASE("a_point_numbered_with_a_plus_acts_from_that_passage_on") {
  Armed a("a#3+=fail");
  CHECK(passages("a", 5) == std::vector<bool>{false, false, true, true, true});
}

TEST_CASE("a_numbered_point_acts_on_that_passage_only") {
  Armed a("a#3=fail;b#1=fail");
  CHECK(passages("a", 5) == std::vector<bool>{false, false, true, false, false});
  CHECK(passages("b", 3) == std::vector<bool>{true, false, false});
}

TEST_CASE("arming_again_starts_the_count_anew_and_forgets_the_old_points") {
  Armed a("a#2=fail");
  CHECK(passages("a", 2) == std::vector<bool>{false, true});
  Armed b("a#2=fail");
  CHECK(passages("a", 2) == std::vector<bool>{false, true});
  Armed c("b=fail");
  CHECK(passages("a", 2) == std::vector<bool>{false, false});
}

TEST_CASE("a_point_that_delays_holds_the_passage_so_long") {
  Armed a("slow=delay:20000;slow_once#2=delay:20000");
  const auto span = [](const char* name) {
    const Nanos before = now();
    fault_point(name);
    return now() - before;
  };
  CHECK(span("slow") >= 20 * kMilli);
  CHECK(span("slow") >= 20 * kMilli);
  CHECK_FALSE(fault_point_fails("slow"));  // asking is no passage of a delay
  (void)span("slow_once");
  CHECK(span("slow_once") >= 20 * kMilli);
}

TEST_CASE("a_point_that_holds_waits_for_its_file") {
  const std::string file = "/tmp/cmi-hold-" + std::to_string(getpid());
  Armed a("held#2=hold:" + file + ";too_long=hold:/" + std::string(300, 'x'));
  fault_point("held");
  fault_point("too_long");  // left out
  std::atomic<pid_t> thread{0};
  std::atomic<bool> past{false};
  std::thread other([&] {
    thread = gettid();
    fault_point("held");
    past = true;
  });
  while (thread == 0) std::this_thread::yield();
  while (!past && !sleeps(thread)) std::this_thread::yield();
  CHECK_FALSE(past.load());
  std::ofstream(file).put('x');
  other.join();
  CHECK(past.load());
  ::unlink(file.c_str());
}

TEST_CASE("malformed_items_are_left_out_and_the_others_kept") {
  Armed a(";=;a;b=explode;c#2;d=fail;" + std::string(100, 'x') + "=fail;");
  CHECK(armed());
  CHECK(fault_point_fails("d"));
  for (const char* name : {"", "a", "b", "c"}) CHECK_FALSE(fault_point_fails(name));
  Armed b("nothing here");
  CHECK_FALSE(armed());
}

TEST_CASE("more_points_than_there_is_room_for_are_left_out") {
  std::string spec;
  for (int i = 0; i < 20; ++i) spec += "p" + std::to_string(i) + "=fail;";
  Armed a(spec);
  CHECK(fault_point_fails("p0"));
  CHECK(fault_point_fails("p7"));
  CHECK_FALSE(fault_point_fails("p19"));
}

TEST_CASE("kill_stop_and_exit_end_the_process_at_the_passage_named") {
  Armed a("k#2=kill;s=stop;e=exit");
  int status = end_of_child("k", 1);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 5));
  status = end_of_child("k", 2);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  status = end_of_child("s", 1);
  CHECK((WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP));
  status = end_of_child("e", 1);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 77));
}

TEST_CASE("passages_of_all_points_are_counted_in_a_file") {
  // In a process of its own: the file stays mapped.
  const std::string path = "/dev/shm/cmi-fault-count-" + std::to_string(getpid());
  const pid_t pid = fork();
  if (pid == 0) {
    setenv("CMI_FAULT_COUNT", path.c_str(), 1);
    arm_fault_points();
    for (int i = 0; i < 3; ++i) fault_point("passed.often");
    const bool fails = fault_point_fails("passed.once");
    _exit(armed() && !fails ? 0 : 1);
  }
  REQUIRE(pid > 0);
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
  const Passages passed = read_passages(path);
  unlink(path.c_str());
  CHECK(passed == Passages{{"passed.often", 3}, {"passed.once", 1}});
}

}  // namespace cmi::test::fault_point_test
