// Medians over runs, held against the bars.
#include "check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "report.hpp"

namespace bench {

namespace {
// The columns of the table: its head and its rows.
constexpr const char kRow[] = "{:<17} {:>10} {:>7} {:>25} {:>9} {:>9}  {}\n";

// The median of each figure of a row by itself, also of how far it is above the floor of its own
// sitting: times of different ones say nothing beside each other where the machine's speed changes.
// The floor is judged by the rule that the row is judged by: in a sitting in which raw is slow both
// have low ratios.
Figures median_of(const std::vector<Figures>& all) {
  const auto each = [&](double Figures::*member) {
    std::vector<double> values;
    for (const Figures& f : all) values.push_back(f.*member);
    return values;
  };
  Figures m(0, 0, 0);
  m.value = spread_of(each(&Figures::value)).median;
  m.raw = spread_of(each(&Figures::raw)).median;
  m.ratio = spread_of(each(&Figures::ratio)).median;
  m.floor = spread_of(each(&Figures::floor)).median;
  m.floor_ratio = spread_of(each(&Figures::floor_ratio)).median;
  m.of_floor = spread_of(each(&Figures::of_floor)).median;
  return m;
}

// The figures of one row in each run in all of whose sittings it was measured.
std::vector<Figures> figures_of(const std::vector<std::vector<Outcome>>& sittings,
                                const std::string& row) {
  std::vector<Figures> all;
  for (size_t first = 0; first < sittings.size(); first += kSittings) {
    std::vector<Figures> run;
    for (size_t i = first; i < std::min(first + kSittings, sittings.size()); ++i) {
      for (const Outcome& o : sittings[i]) {
        if (row == o.name) run.emplace_back(o.value, o.raw, o.floor);
      }
    }
    if (run.size() == kSittings) all.push_back(median_of(run));
  }
  return all;
}

// One of each name.
std::vector<Outcome> each_once(const std::vector<std::vector<Outcome>>& sittings) {
  std::vector<Outcome> all;
  for (const auto& run : sittings) {
    for (const Outcome& o : run) {
      const auto same = [&](const Outcome& a) { return std::strcmp(a.name, o.name) == 0; };
      if (std::none_of(all.begin(), all.end(), same)) all.push_back(o);
    }
  }
  return all;
}

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kMet:
      return "met";
    case Verdict::kImpossible:
      return "IMPOSSIBLE HERE";
    case Verdict::kMissed:
      return "MISSED";
  }
  return "";
}
}  // namespace

std::vector<Outcome> outcomes_of(const Control& control) {
  return {control.outcomes, control.outcomes + std::min(control.outcome_count, kMaxOutcomes)};
}

void write_json(const std::string& path, const std::vector<std::vector<Outcome>>& sittings) {
  std::FILE* const json = std::fopen(path.c_str(), "we");
  must(json != nullptr, path + ": " + std::strerror(errno));
  for (Outcome o : each_once(sittings)) {
    const auto all = figures_of(sittings, o.name);
    if (all.empty()) continue;  // a sitting has failed, and with it the check
    const Figures f = median_of(all);
    o.value = f.value;
    o.raw = f.raw;
    o.floor = f.floor;
    json_lines(json, o);
  }
  std::fclose(json);
}

Verdict check(const std::vector<std::vector<Outcome>>& sittings) {
  std::vector<std::string> rows;
  for (const Outcome& o : each_once(sittings)) {
    if (bar_of(o.name) != nullptr) rows.push_back(o.name);
  }
  fmt::print("\nmedians of {} runs of {} sittings each\n", kRuns, kSittings);
  fmt::print(kRow, "name", "value", "ratio", "bar", "of floor", "floor is", "verdict");
  Verdict worst = Verdict::kMet;
  for (const std::string& row : rows) {
    const Bar& bar = *bar_of(row);
    const auto all = figures_of(sittings, row);
    if (all.empty()) {
      fmt::print("{:<17} NOT MEASURED IN EACH SITTING\n", row);
      worst = Verdict::kMissed;
      continue;
    }
    const Figures f = median_of(all);
    const auto others =
        bar.of != nullptr ? figures_of(sittings, bar.of) : std::vector<Figures>(kRuns, f);
    const std::optional<Figures> of =
        bar.of != nullptr && !others.empty() ? std::optional(median_of(others)) : std::nullopt;
    const Verdict verdict = judge(bar, f, of ? &*of : nullptr);
    const bool complete = all.size() == kRuns && others.size() == kRuns;
    worst = std::max(worst, complete ? verdict : Verdict::kMissed);
    const auto shown = [](double v) { return v > 0 ? fmt::format("{:.2f}", v) : "-"; };
    const char* relation = bar.kind == Bar::kRatioAtLeast ? ">= " : "<= ";
    fmt::print(kRow, row, number(f.value), shown(f.ratio), relation + bound_of(bar),
               shown(f.of_floor), shown(f.floor_ratio),
               complete ? name_of(verdict) : "NOT MEASURED IN EACH SITTING");
  }
  fmt::print("floor is: its ratio to raw\n");
  std::fflush(stdout);
  return worst;
}

}  // namespace bench
