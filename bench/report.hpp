// Samples to quartiles, quartiles to the table on standard output and to JSON lines. In the
// measuring process.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "control.hpp"
#include "peers.hpp"
#include "util.hpp"

namespace bench {

struct Spread {
  double low = 0, median = 0, high = 0;  // quartiles
  size_t count = 0;
};
Spread spread_of(std::vector<double> samples);

struct Row {
  std::string name, unit;
  Spread ours;
  std::optional<Spread> raw;
  std::string against;   // what `raw` is, or what the row means where there is none
  size_t discarded = 0;  // samples that did not measure what the row says
  // The least that the same takes here with raw libfabric and bare page faults, where that was
  // measured.
  std::optional<Spread> floor = {};
};

class Report {
 public:
  // json: empty for none. Fails when it cannot be written. Medians go to Control, too.
  Report(Control& control, std::string provider, const std::string& json);
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  void header(const std::string& line) const;
  void row(const Row& row);
  const Row* find(const std::string& name) const;  // null: not measured in this run
  // A second table: rows of ours beside those of the same name of other libraries.
  void peers_header(const PeerStack* stacks, int count) const;
  void peers_row(const Row& row, const PeerStack* stacks, int count, const char* what) const;
  void failed(const std::string& name, const std::string& why) const;
  void footer() const;

 private:
  // For Control, and for the file.
  void note(const std::string& name, const std::string& unit, double value, double raw,
            const std::string& provider, double floor) const;

  Control& control_;
  std::string provider_;
  std::FILE* json_ = nullptr;
  std::vector<Row> rows_;
};

// {"name","unit","value","raw","ratio","provider"}, in one line for the row, and in another one,
// named ROW_floor, for its floor.
void json_lines(std::FILE* json, const Outcome& outcome);

// Machine, kernel, CPUs, load.
std::string machine_line();
// With three digits or more.
std::string number(double value);

}  // namespace bench
