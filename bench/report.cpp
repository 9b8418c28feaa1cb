// The table and the JSON lines.
#include "report.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "bars.hpp"

namespace bench {

namespace {
std::string number(double v) {
  if (v >= 1000) return fmt::format("{:.0f}", v);
  return v >= 100 ? fmt::format("{:.1f}", v) : fmt::format("{:.2f}", v);
}

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

Report::Report(std::string provider, const std::string& json) : provider_(std::move(provider)) {
  if (json.empty()) return;
  json_ = std::fopen(json.c_str(), "ae");  // behind the rows of earlier runs of --check
  must(json_ != nullptr, json + ": " + std::strerror(errno));
}

Report::~Report() {
  if (json_ != nullptr) std::fclose(json_);
}

void Report::header(const std::string& line) const {
  fmt::print("{}\n\n{:<17} {:<5} {:<28} {:<28} {:>6} {:>6}  {}\n", line, "name", "unit",
             "libcmi, median (quartiles)", "raw, median (quartiles)", "ratio", "n", "raw is");
  std::fflush(stdout);
}

void Report::row(const Row& row) {
  const double ratio = row.raw ? row.ours.median / row.raw->median : 0;
  std::string remark = row.against;
  if (const Bar* bar = bar_of(row.name); bar != nullptr && !meets(*bar, row.ours.median, ratio)) {
    ++missed_;
    remark = fmt::format("MISSES {:.4g}; ", bar->bound) + remark;
  }
  if (row.discarded > 0) remark += fmt::format("; {} samples disturbed, left out", row.discarded);
  fmt::print("{:<17} {:<5} {:<28} {:<28} {:>6} {:>6}  {}\n", row.name, row.unit,
             quartiles(row.ours), row.raw ? quartiles(*row.raw) : "-",
             row.raw ? fmt::format("{:.2f}", ratio) : "-", row.ours.count, remark);
  std::fflush(stdout);
  if (json_ == nullptr) return;
  // A NaN or an infinity is no JSON; medians of durations are neither.
  fmt::print(json_,
             R"({{"name":"{}","unit":"{}","value":{:.4f},"raw":{},"ratio":{},"provider":"{}"}})"
             "\n",
             row.name, row.unit, row.ours.median,
             row.raw ? fmt::format("{:.4f}", row.raw->median) : "null",
             row.raw ? fmt::format("{:.4f}", ratio) : "null", provider_);
  std::fflush(json_);
}

void Report::failed(const std::string& name, const std::string& why) const {
  fmt::print("{:<17} FAILED: {}\n", name, why);
  std::fflush(stdout);
}

void Report::footer() const {
  fmt::print("\nratio: libcmi to raw, of medians; for MB/s more is better, for ns and us less.\n");
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
