// The fault sweep over a program as a client would write it: examples/02-wordcount counts a text on
// three nodes, once for each fault point of the library, with one of its processes killed where it
// first comes past, or with the point failing there where it can fail. Each time either every
// process that was not killed ends well and every count is right, or those that met the loss end
// with status 1 and lines that name the process that is lost. Nobody hangs or crashes, nothing
// wrong is shown as right, nothing is left behind, and the same nodes count again.
//
// Who is killed is found by a run that only counts who comes past which point. Not every point can
// be reached by one program: sweep_test.cpp has the workload that reaches all. The cases are equal
// shares of the list, for ctest to run side by side. CMI_SWEEP_POINT names one to be played alone.
#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fault/word_count.hpp"
#include "system/calls.hpp"

namespace cmi::test::word_count_sweep_test {

namespace {

using Role = WordCount::Role;
constexpr Role kAll[] = {WordCount::kHome, WordCount::kPeer, WordCount::kThird};

struct Point {
  std::string_view name;
  bool fails;  // takes an error path; else a place to die at
};
constexpr Point kPoints[] = {
#define FAULT_POINT(name, fails) {name, fails},
#include "fault_points.inc"
#undef FAULT_POINT
};
constexpr size_t kShares = 6;

// What the word count comes past of all points, at least: 67 are seen.
constexpr size_t kLeastReached = 60;

class Sweep {
 public:
  // Everything ends well where nothing is broken; who comes past which point then.
  Sweep() {
    const WordCount count(cluster_, input_, WordCount::kHome, "");
    check_well(count);
    for (Role role : kAll) passed_[role] = count.part(role).passages;
    check_no_litter();
  }

  // Somebody was killed there, or met the failure.
  bool play(const Point& point) {
    const std::string name(point.name);
    const Role victim = choose(name);
    CAPTURE(name);
    CAPTURE(victim);
    // What is never answered is given up 5 s after a silent home would be dead.
    const Env sooner = name == "round_never_over" ? Env{{"CMI_DEAD_AFTER", "2000"}} : Env{};
    const WordCount count(cluster_, input_, victim, name + (point.fails ? "#1=fail" : "#1=kill"),
                          sooner);
    INFO(count.all_said());
    const WordCount::Part& hit = count.part(victim);
    const bool reached = point.fails ? hit.passages.contains(name) : hit.killed();
    if (!reached) {
      check_well(count);
    } else {
      for (Role role : kAll) {
        if (!point.fails && role == victim) continue;
        check_ending(count, role, victim, point);
      }
      // Whoever is left to show counts shows the right ones.
      if (count.part(WordCount::kHome).exited(0)) CHECK(count.shows_the_counts(input_));
    }
    check_no_litter();
    std::printf("%-32s %s\n", name.c_str(),
                !reached      ? "not come past"
                : point.fails ? "failed"
                              : WordCount::kNodes[victim]);
    return reached;
  }

  // Of the points in the library's sources, so many were come past by somebody.
  size_t passed() const {
    return static_cast<size_t>(
        std::count_if(std::begin(kPoints), std::end(kPoints), [&](auto& p) { return passed(p); }));
  }
  bool passed(const Point& point) const {
    return std::any_of(std::begin(kAll), std::end(kAll),
                       [&](Role role) { return passed_[role].contains(std::string(point.name)); });
  }

  // The same nodes count once more.
  void again() {
    const WordCount count(cluster_, input_, WordCount::kHome, "");
    check_well(count);
    check_no_litter();
  }

 private:
  // Of those that come past, an importer rather than the home, unless the point is about homes.
  Role choose(const std::string& name) const {
    const bool homely = name.starts_with("node.") || name.starts_with("home_");
    const Role order[] = {homely ? WordCount::kHome : WordCount::kPeer,
                          homely ? WordCount::kPeer : WordCount::kThird,
                          homely ? WordCount::kThird : WordCount::kHome};
    for (Role role : order) {
      if (passed_[role].contains(name)) return role;
    }
    return order[0];
  }

  void check_well(const WordCount& count) {
    INFO(count.all_said());
    for (Role role : kAll) {
      CAPTURE(role);
      CHECK(count.part(role).exited(0));
    }
    CHECK(count.shows_the_counts(input_));
  }

  // One that lives on: it ends well, or says why not, and who is lost where somebody is.
  void check_ending(const WordCount& count, Role role, Role victim, const Point& point) {
    const bool died = !point.fails;
    // A home that lives and never answers is waited for as long as the run may take.
    const bool in_vain = point.name == "round_never_over";
    const WordCount::Part& part = count.part(role);
    CAPTURE(role);
    if (!part.started) {
      CHECK_FALSE(count.part(WordCount::kHome).exited(0));  // there was nothing to join
      return;
    }
    CHECK((in_vain || !part.says("in time")));
    if (part.exited(0)) return;
    CHECK_MESSAGE(part.exited(1), describe_status(part.status));
    CHECK_FALSE(part.says("identical: "));  // there is no result, right or wrong
    if (!died) {
      const bool own = part.says(" failed with error ") || part.says("exception ");
      CHECK((own || part.says(" gives up: ") || part.says(" has ended") ||
             (in_vain && part.says("in time"))));
    } else if (victim == WordCount::kHome) {
      CHECK(part.says("the home has ended"));
    } else {
      CHECK(says_another_has_ended(part));
      if (role != WordCount::kHome) CHECK(part.says("the home gives up: "));
    }
  }
  // A node, and not the one that says so: its own name stands at the beginning of its lines. The
  // home numbers the nodes as they come.
  static bool says_another_has_ended(const WordCount::Part& part) {
    for (const std::string node : {"node 2", "node 3"}) {
      const bool own = part.output.starts_with(node + ": ") || part.says("\n" + node + ": ");
      if (!own && part.says(node + " has ended")) return true;
    }
    return false;
  }

  // What was left is taken away by the next context of each node, and then nothing is there.
  void check_no_litter() {
    if (!cluster_.files().empty()) {
      std::vector<Process*> next;
      std::vector<Pending<Answer>> starting;
      for (const char* node : WordCount::kNodes) next.push_back(&cluster_.spawn_bare(node));
      for (Process* process : next) {
        starting.push_back(process->start([] { return start_context(CMI_VERNO); }));
      }
      for (auto& started : starting) CHECK(started.get().ok());
      for (Process* process : next) CHECK(process->end() == 0);
    }
    const std::vector<std::string> left = cluster_.files();
    CHECK_MESSAGE(left.empty(), "left in the runtime folder: ", left.empty() ? "" : left.front());
  }

  Cluster cluster_;
  const KnownText input_ = known_text();
  Passages passed_[WordCount::kRoles];
};

void sweep_words(size_t share) {
  const char* const only = std::getenv("CMI_SWEEP_POINT");
  Sweep sweep;
  size_t passed = 0, reached = 0;
  for (size_t i = share; i < std::size(kPoints); i += kShares) {
    if (only != nullptr && kPoints[i].name != only) continue;
    passed += sweep.passed(kPoints[i]);
    reached += sweep.play(kPoints[i]);
  }
  if (only != nullptr) return;
  sweep.again();
  CHECK(passed > 0);
  CHECK(reached * 4 >= passed * 3);  // not all runs come past the same points
}

TEST_SUITE("sweep") {
  TEST_CASE("the_word_count_comes_past_most_fault_points_of_the_library") {
    const Sweep sweep;
    std::printf("%zu of %zu points\n", sweep.passed(), std::size(kPoints));
    CHECK(sweep.passed() >= kLeastReached);
  }
  TEST_CASE("the_word_count_ends_right_or_says_who_is_lost_first_part") { sweep_words(0); }
  TEST_CASE("the_word_count_ends_right_or_says_who_is_lost_second_part") { sweep_words(1); }
  TEST_CASE("the_word_count_ends_right_or_says_who_is_lost_third_part") { sweep_words(2); }
  TEST_CASE("the_word_count_ends_right_or_says_who_is_lost_fourth_part") { sweep_words(3); }
  TEST_CASE("the_word_count_ends_right_or_says_who_is_lost_fifth_part") { sweep_words(4); }
  TEST_CASE("the_word_count_ends_right_or_says_who_is_lost_sixth_part") { sweep_words(5); }
}

}  // namespace

}  // namespace cmi::test::word_count_sweep_test
