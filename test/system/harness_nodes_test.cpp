// The harness itself: commands, deadlines, deaths. None of these use the library.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "system/guard.hpp"
#include "system/litter.hpp"
#include "system/nodes.hpp"

namespace cmi::test::harness_nodes_test {

namespace {

std::string failure_of(Process& process, int seconds) {
  try {
    process.start([] { return ::raise(SIGSTOP); }).get(seconds);
  } catch (const ChildFailed& failure) {
    return failure.what();
  }
  return {};
}

TEST_SUITE("harness") {
  TEST_CASE("a_child_runs_lambdas_with_arguments_in_its_own_environment") {
    Cluster cluster;
    Process& child = cluster.spawn_bare("one", {{"CMI_TEST_EXTRA", "x"}});
    CHECK(child.run([](int a, uint64_t b) { return b - static_cast<uint64_t>(a); }, 2, 44) == 42);
    CHECK(child.run([] { return ::getpid(); }) == child.pid());
    CHECK(child.run([] { return std::string(std::getenv("CMI_NODE")) == "one"; }));
    CHECK(child.run([] { return std::string(std::getenv("CMI_TEST_EXTRA")) == "x"; }));
    auto waiting = child.start([] {
      uint64_t rounds = 0;
      do {
        ++rounds;
      } while (!called_back());
      return rounds;
    });
    CHECK(waiting.finish() > 0);
    CHECK(child.end() == 0);
  }

  TEST_CASE("a_child_that_dies_or_hangs_is_told_by_name_and_signal") {
    Cluster cluster;
    Process& crashing = cluster.spawn_bare("crashing");
    CHECK_THROWS_WITH_AS(crashing.run([] { ::raise(SIGKILL); }), "crashing: killed by signal 9",
                         ChildFailed);
    CHECK(crashing.ended());
    Process& hanging = cluster.spawn_bare("hanging");
    CHECK(failure_of(hanging, 1) == "hanging did not answer in time");
    hanging.kill();
    CHECK(died_by(hanging.wait_end(), SIGKILL));
  }

  TEST_CASE("guarded_accesses_tell_what_was_raised") {
    Cluster cluster;
    Process& child = cluster.spawn_bare("one");
    const Access bad = child.run([] { return load64(8); });
    CHECK(bad.cause() == Fault::kPlain);
    CHECK(bad.fault.address == 8);
    CHECK(child.run([] { return access_code(); }).holds(bad.fault.context_pc));
    static uint64_t word = 7;
    CHECK(child.run([] { return load64(reinterpret_cast<uint64_t>(&word)); }).value == 7);
    CHECK(child.run([] { return store8(16, 1); }).cause() == Fault::kPlain);
  }

  TEST_CASE("what_a_cluster_leaves_in_shared_memory_or_running_is_seen") {
    const Litter litter;
    const std::string mine = "/dev/shm/left:" + std::to_string(::getpid()) + ":1";
    CHECK(litter.shared({::getpid()}).empty());
    const Fd file(::open(mine.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
    REQUIRE(file);
    CHECK(litter.shared({::getpid()}) == std::vector<std::string>{mine});
    CHECK(litter.shared({::getpid() + 1}).empty());
    ::unlink(mine.c_str());
    CHECK(litter.shared({::getpid()}).empty());

    // A child's child whose parent has ended.
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const pid_t orphan = ::fork();
      if (orphan == 0) {
        char end;
        ::close(ends[1]);
        [[maybe_unused]] const ssize_t got = ::read(ends[0], &end, 1);  // until the test ends
      }
      ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    const std::set<pid_t> running = litter.running({}, 0);
    CHECK(running.size() == 1);
    CHECK(litter.running(running, 0).empty());
    ::close(ends[0]);
    ::close(ends[1]);
    CHECK(litter.running({}).empty());
    for (pid_t orphan : running) CHECK(::waitpid(orphan, &status, 0) == orphan);
  }
}

}  // namespace

}  // namespace cmi::test::harness_nodes_test
