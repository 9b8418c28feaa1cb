// Programs of examples/ beside what people use today for the same: whole runs of their scripts, in
// processes of their own.
#include <cstdio>
#include <map>
#include <sstream>

#include "cases.hpp"
#include "scripts.hpp"

namespace bench {

namespace {

constexpr int kSkipped = 77;
// As nodes of one machine may do.
constexpr char kMapped[] = "env CMI_LOCAL=on ";
constexpr char kMixes[] = {'a', 'b', 'c'};
constexpr int kNodes[] = {1, 2, 4};

std::string row_of(char mix, int nodes) {
  return std::string("ycsb_") + mix + "_" + std::to_string(nodes);
}

// Of lines "NAME pass I: X operations/s", all from the second pass on.
std::vector<double> rates(const std::string& output) {
  std::istringstream lines(output);
  std::vector<double> all;
  for (std::string line; std::getline(lines, line);) {
    unsigned pass = 0;
    double rate = 0;
    if (std::sscanf(line.c_str(), "%*s pass %u: %lf operations/s", &pass, &rate) == 2 && pass > 1) {
      all.push_back(rate);
    }
  }
  return all;
}

void measure(Bench& b, const std::string& row, const std::string& command,
             const std::string& against) {
  const Script script = run_script(command);
  if (script.status == kSkipped) {
    b.report.failed(row, script.output);
    return;
  }
  const std::vector<double> all = rates(script.output);
  must(script.status == 0 && !all.empty(), row + ": " + script.output);
  b.report.row({row, "op/s", spread_of(all), {}, against, 0});
}

// Of the line "NAME: X ms", so often; the script is run for each.
void measure_times(Bench& b, const std::string& suffix, const std::string& command,
                   const std::string& against) {
  std::map<std::string, std::vector<double>> times;
  for (size_t i = 0; i < b.scaled(5, 1); ++i) {
    const Script script = run_script(command);
    if (script.status == kSkipped) return b.report.failed("graph" + suffix, script.output);
    must(script.status == 0, command + ": " + script.output);
    std::istringstream lines(script.output);
    for (std::string line; std::getline(lines, line);) {
      char name[40];
      double ms = 0;
      if (std::sscanf(line.c_str(), "%39[a-z_0-9]: %lf ms", name, &ms) == 2) {
        times[name].push_back(ms);
      }
    }
  }
  must(times.size() == 3, command + ": rows are missing");
  for (const auto& [name, all] : times) {
    b.report.row({name + suffix, "ms", spread_of(all), {}, against, 0});
  }
}

}  // namespace

std::vector<const char*> ycsb_rows() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const char mix : kMixes) {
      for (const int nodes : kNodes) {
        for (const char* beside : {"", "_local", "_redis", "_memcached"}) {
          if (nodes > 1 || std::string(beside) != "_local") {
            all.push_back(row_of(mix, nodes) + beside);
          }
        }
      }
    }
    return all;
  }();
  std::vector<const char*> rows;
  for (const std::string& name : names) rows.push_back(name.c_str());
  return rows;
}

void ycsb(Bench& b) {
  const std::string folder = CMI_EXAMPLES "/05-kv/", build = " " CMI_BUILD_DIR " ";
  for (const char mix : kMixes) {
    for (const int nodes : kNodes) {
      const std::string row = row_of(mix, nodes);
      // A read from the cache takes a hundredth of a read from a server.
      const std::string of_what = std::string(1, mix) + " " + std::to_string(nodes) + " 10000 ";
      const auto operations = [&](size_t full) {
        return std::to_string(b.scaled(full, full / 10)) + " 4";
      };
      const size_t ours = mix == 'a' ? 20000 : mix == 'b' ? 50000 : 500000;
      measure(b, row, folder + "run-ycsb" + build + of_what + operations(ours),
              "clients of one store, together, from the second pass on");
      if (nodes > 1) {
        measure(b, row + "_local",
                kMapped + (folder + "run-ycsb") + build + of_what + operations(ours),
                "the same, pages of the home mapped");
      }
      for (const char* server : {"redis", "memcached"}) {
        measure(b, row + "_" + server,
                folder + "run-servers" + build + server + " " + of_what + operations(20000),
                std::string("as many clients of ") + server + ", over TCP");
      }
    }
  }
}

std::vector<const char*> graph_rows() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const char* algorithm : {"pagerank", "bfs", "components"}) {
      for (const int nodes : kNodes) {
        const std::string row = std::string("graph_") + algorithm + "_" + std::to_string(nodes);
        all.push_back(row);
        if (nodes > 1) {
          all.push_back(row + "_local");
          all.push_back(row + "_mpi");
        }
      }
    }
    return all;
  }();
  std::vector<const char*> rows;
  for (const std::string& name : names) rows.push_back(name.c_str());
  return rows;
}

void graph(Bench& b) {
  const std::string folder = CMI_EXAMPLES "/06-graph/", build = " " CMI_BUILD_DIR " ";
  const std::string scale = " " + std::to_string(b.scaled(18, 14));
  for (const int nodes : kNodes) {
    const std::string arguments = build + std::to_string(nodes) + scale;
    measure_times(b, "", folder + "run-graph" + arguments, "the second of two runs of all nodes");
    if (nodes > 1) {
      measure_times(b, "_local", kMapped + (folder + "run-graph") + arguments,
                    "the same, pages of other nodes mapped");
      measure_times(b, "_mpi", folder + "run-mpi" + arguments, "Open MPI, one-sided, over tcp");
    }
  }
}

}  // namespace bench
