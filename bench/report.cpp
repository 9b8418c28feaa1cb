// The table and the JSON lines.
#include "report.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bars.hpp"

namespace bench {

std::string number(double v) {
  if (v >= 1000) return fmt::format("{:.0f}", v);
  return v >= 100 ? fmt::format("{:.1f}", v) : fmt::format("{:.2f}", v);
}

namespace {
// The columns of the tables: a head and its rows are printed by the same format.
constexpr const char kRow[] = "{:<17} {:<5} {:<28} {:<28} {:>6} {:>6}  {}\n";
constexpr const char kPeersRow[] = "{:<17} {:<5} {:>9} {:>9}";  // and for each peer
constexpr const char kPeerColumn[] = " {:>12}";

std::string quartiles(const Spread& s) {
  return fmt::format("{} ({} to {})", number(s.median), number(s.low), number(s.high));
}
}  // namespace

Spread spread_of(std::vector<double> samples) {
  must(!samples.empty(), "no sample measured what it should");
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double share) {
    return samples[static_cast<size_t>(share * static_cast<double>(samples.size() - 1) + 0.5)];
  };
  return {at(0.25), at(0.5), at(0.75), samples.size()};
}

Report::Report(Control& control, std::string provider, const std::string& json)
    : control_(control), provider_(std::move(provider)) {
  if (json.empty()) return;
  json_ = std::fopen(json.c_str(), "ae");
  must(json_ != nullptr, json + ": " + std::strerror(errno));
}

Report::~Report() {
  if (json_ != nullptr) std::fclose(json_);
}

void Report::header(const std::string& line) const {
  fmt::print("{}\n\n", line);
  fmt::print(kRow, "name", "unit", "libcmi, median (quartiles)", "raw, median (quartiles)", "ratio",
             "n", "raw is");
  std::fflush(stdout);
}

void Report::row(const Row& row) {
  const double raw = row.raw ? row.raw->median : 0, floor = row.floor ? row.floor->median : 0;
  const Figures figures(row.ours.median, raw, floor);
  std::string remark = row.against;
  if (row.floor) {
    remark = fmt::format("{:.2f} of its floor {}, which is {:.2f} of raw; {}", figures.of_floor,
                         quartiles(*row.floor), figures.floor_ratio, remark);
  }
  if (const Bar* bar = bar_of(row.name); bar != nullptr) {
    const Row* const other = bar->of != nullptr ? find(bar->of) : nullptr;
    std::optional<Figures> of;
    if (other != nullptr) {
      of.emplace(other->ours.median, other->raw ? other->raw->median : 0, 0);
    }
    if (bar->of == nullptr || of) {
      remark = marked(*bar, judge(*bar, figures, of ? &*of : nullptr)) + remark;
    }
  }
  if (row.discarded > 0) remark += fmt::format("; {} samples disturbed, left out", row.discarded);
  fmt::print(kRow, row.name, row.unit, quartiles(row.ours), row.raw ? quartiles(*row.raw) : "-",
             row.raw ? fmt::format("{:.2f}", figures.ratio) : "-", row.ours.count, remark);
  std::fflush(stdout);
  rows_.push_back(row);
  note(row.name, row.unit, row.ours.median, raw, provider_, floor);
}

void Report::note(const std::string& name, const std::string& unit, double value, double raw,
                  const std::string& provider, double floor) const {
  must(control_.outcome_count < kMaxOutcomes, "more rows than there is room for");
  Outcome& o = control_.outcomes[control_.outcome_count++];
  std::snprintf(o.name, sizeof o.name, "%s", name.c_str());
  std::snprintf(o.unit, sizeof o.unit, "%s", unit.c_str());
  std::snprintf(o.provider, sizeof o.provider, "%s", provider.c_str());
  o.value = value;
  o.raw = raw;
  o.floor = floor;
  if (json_ != nullptr) json_lines(json_, o);
}

// Numbers to four decimals. A NaN or an infinity would be null; medians of durations are neither.
void json_lines(std::FILE* json, const Outcome& o) {
  using Json = nlohmann::ordered_json;
  const auto rounded = [](double v) { return std::round(v * 1e4) / 1e4; };
  const auto line = [&](const char* kind, double value) {
    const Json row{{"name", std::string(o.name) + kind},
                   {"unit", o.unit},
                   {"value", rounded(value)},
                   {"raw", o.raw > 0 ? Json(rounded(o.raw)) : Json()},
                   {"ratio", o.raw > 0 ? Json(rounded(value / o.raw)) : Json()},
                   {"provider", o.provider}};
    fmt::print(json, "{}\n", row.dump());
  };
  line("", o.value);
  if (o.floor > 0) line("_floor", o.floor);
  std::fflush(json);
}

const Row* Report::find(const std::string& name) const {
  const auto it = std::find_if(rows_.begin(), rows_.end(), [&](auto& r) { return r.name == name; });
  return it == rows_.end() ? nullptr : &*it;
}

void Report::peers_header(const PeerStack* stacks, int count) const {
  fmt::print("\none-sided MPI between two processes on the same CPUs, the target polling:\n");
  for (int i = 0; i < count; ++i) {
    const PeerStack& s = stacks[i];
    if (s.skipped[0] != 0) {
      fmt::print("  {:<12} left out: {} over {}: {}\n", s.id, s.name, s.transport, s.skipped);
    } else {
      fmt::print("  {:<12} {} over {}\n", s.id, s.name, s.transport);
    }
  }
  fmt::print(kPeersRow, "name", "unit", "libcmi", "raw");
  for (int i = 0; i < count; ++i) fmt::print(kPeerColumn, stacks[i].id);
  fmt::print("  theirs is\n");
  std::fflush(stdout);
}

void Report::peers_row(const Row& row, const PeerStack* stacks, int count, const char* what) const {
  const double raw = row.raw ? row.raw->median : 0;
  fmt::print(kPeersRow, row.name, row.unit, number(row.ours.median), row.raw ? number(raw) : "-");
  for (int i = 0; i < count; ++i) {
    const PeerStack& s = stacks[i];
    std::string shown = "-";
    for (uint32_t f = 0; f < s.figure_count && s.skipped[0] == 0; ++f) {
      const PeerFigure& figure = s.figures[f];
      if (row.name != figure.row || row.unit != figure.unit) continue;
      shown = number(figure.median);
      note(row.name + "_" + s.id, row.unit, figure.median, raw,
           fmt::format("{} over {}", s.name, s.transport), 0);
    }
    fmt::print(kPeerColumn, shown);
  }
  fmt::print("  {}\n", what);
  std::fflush(stdout);
}

void Report::failed(const std::string& name, const std::string& why) const {
  fmt::print("{:<17} FAILED: {}\n", name, why);
  std::fflush(stdout);
}

void Report::footer() const {
  fmt::print(
      "\nratio: libcmi to raw, of medians; for MB/s more is better, for ns and us less.\n"
      "floor: the same with raw libfabric and bare page faults, in the same processes, in turn.\n"
      "IMPOSSIBLE HERE: the floor misses the bar, too.\n");
  std::fflush(stdout);
}

std::string machine_line() {
  std::string model = "unknown processor", line;
  std::ifstream cpuinfo("/proc/cpuinfo");
  while (std::getline(cpuinfo, line)) {
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  utsname os{};
  uname(&os);
  const size_t cpus = allowed_cpus().size();
  double load = 0;
  const bool known = getloadavg(&load, 1) == 1;
  std::string text =
      fmt::format("{}, {} CPU{}, {} {}", model, cpus, cpus == 1 ? "" : "s", os.sysname, os.release);
  if (known && load > 0.3) text += fmt::format(", load {:.1f} AT THE START: NOISY", load);
  return text;
}

}  // namespace bench
