// The verdict of `./run bench --check`, of figures made up here: what counts as met, as impossible
// on a machine and as missed, over runs and their sittings, and the lines that a program reads.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/bars.hpp"
#include "bench/check.hpp"

namespace cmi::test::verdict_test {

namespace {

using namespace bench;
using Sittings = std::vector<std::vector<Outcome>>;

Outcome outcome(const char* name, double value, double raw, double floor = 0) {
  Outcome o{};
  std::snprintf(o.name, sizeof o.name, "%s", name);
  std::snprintf(o.unit, sizeof o.unit, "us");
  std::snprintf(o.provider, sizeof o.provider, "net");
  o.value = value;
  o.raw = raw;
  o.floor = floor;
  return o;
}

// Of `cas`, whose bar is 1.2, in each sitting; raw takes 10.
Sittings sittings(const std::vector<double>& values, double floor = 0) {
  Sittings all;
  for (double value : values) all.push_back({outcome("cas", value, 10, floor)});
  return all;
}

TEST_CASE("a_row_meets_its_bar_or_misses_it") {
  const Bar& cas = *bar_of("cas");
  CHECK(judge(cas, {12, 10, 0}, nullptr) == Verdict::kMet);
  CHECK(judge(cas, {12.01, 10, 0}, nullptr) == Verdict::kMissed);
  const Bar& read = *bar_of("read_seq");
  CHECK(judge(read, {65, 100, 0}, nullptr) == Verdict::kMet);
  CHECK(judge(read, {64, 100, 0}, nullptr) == Verdict::kMissed);
  const Bar& first = *bar_of("store_first");
  CHECK(judge(first, {5, 0, 0}, nullptr) == Verdict::kMet);
  CHECK(judge(first, {5.01, 0, 0}, nullptr) == Verdict::kMissed);
  CHECK(bar_of("what_nobody_measures") == nullptr);
}

TEST_CASE("a_bar_is_impossible_only_where_its_floor_misses_it_and_the_row_is_near_that") {
  const Bar& cas = *bar_of("cas");
  CHECK(judge(cas, {15, 10, 12.5}, nullptr) == Verdict::kImpossible);
  CHECK(judge(cas, {15, 10, 12}, nullptr) == Verdict::kMissed);    // the floor meets it
  CHECK(judge(cas, {16, 10, 12.5}, nullptr) == Verdict::kMissed);  // 1.28 of the floor
  CHECK(judge(cas, {11, 10, 12.5}, nullptr) == Verdict::kMet);
  const Bar& read = *bar_of("read_seq");
  CHECK(judge(read, {50, 100, 60}, nullptr) == Verdict::kImpossible);
  CHECK(judge(read, {40, 100, 60}, nullptr) == Verdict::kMissed);
  CHECK(judge(read, {60, 100, 66}, nullptr) == Verdict::kMissed);
}

TEST_CASE("a_bar_that_names_another_row_needs_it") {
  const Bar& threads = *bar_of("threads_4");
  const Figures one(40, 100, 0), good(37, 100, 0), bad(35, 100, 0);
  CHECK(judge(threads, good, &one) == Verdict::kMet);
  CHECK(judge(threads, bad, &one) == Verdict::kMissed);
  CHECK(judge(threads, good, nullptr) == Verdict::kMissed);
}

TEST_CASE("the_check_is_of_the_medians_of_three_runs_of_three_sittings") {
  // One run of three may miss, and one sitting of a run.
  CHECK(check(sittings({11, 11, 20, 11, 20, 11, 20, 20, 20})) == Verdict::kMet);
  CHECK(check(sittings({11, 11, 11, 20, 20, 11, 20, 11, 20})) == Verdict::kMissed);
  CHECK(check(sittings({14, 14, 14, 14, 14, 14, 14, 14, 14}, 12.5)) == Verdict::kImpossible);
  // What was not measured in all of them is missed, however good the others are.
  CHECK(check(sittings({11, 11, 11, 11, 11, 11, 11, 11})) == Verdict::kMissed);
  Sittings one_without = sittings({11, 11, 11, 11, 11, 11, 11, 11, 11});
  one_without[4].clear();
  CHECK(check(one_without) == Verdict::kMissed);
  // Of several rows the worst decides; a row without a bar says nothing.
  Sittings two = sittings({11, 11, 11, 11, 11, 11, 11, 11, 11});
  for (auto& sitting : two) sitting.push_back(outcome("cas_of_a_kind_without_a_bar", 90, 10));
  CHECK(check(two) == Verdict::kMet);
  for (auto& sitting : two) sitting.push_back(outcome("rmb", 101, 0));
  CHECK(check(two) == Verdict::kMissed);
}

TEST_CASE("each_row_and_each_floor_is_a_line_of_json") {
  char path[] = "/tmp/cmi-bench-XXXXXX";
  const int file = mkstemp(path);
  REQUIRE(file >= 0);
  ::close(file);
  struct Remove {
    const char* path;
    ~Remove() { std::filesystem::remove(path); }
  } const remove{path};
  write_json(path, sittings({11, 12, 13, 12, 12, 12, 12, 12, 12}, 10));
  // Each line is a value by itself, with its keys in the order that people read.
  using Json = nlohmann::ordered_json;
  const auto lines = [&] {
    std::ifstream in(path);
    std::vector<Json> all;
    for (std::string line; std::getline(in, line);) all.push_back(Json::parse(line));
    return all;
  };
  const auto row = [](const char* name, double value, const Json& raw, const Json& ratio) {
    return Json{{"name", name}, {"unit", "us"},   {"value", value},
                {"raw", raw},   {"ratio", ratio}, {"provider", "net"}};
  };
  CHECK(lines() ==
        std::vector<Json>{row("cas", 12.0, 10.0, 1.2), row("cas_floor", 10.0, 10.0, 1.0)});
  // Without raw there is no ratio; four decimals are enough.
  write_json(path, Sittings(9, {outcome("rmb", 20.000051, 0)}));
  CHECK(lines() == std::vector<Json>{row("rmb", 20.0001, nullptr, nullptr)});
}

}  // namespace

}  // namespace cmi::test::verdict_test
