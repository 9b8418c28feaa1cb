// What others take for memory that processes of one machine share: shared windows of MPI, and the
// word count of one process alone. Whole programs, in processes of their own.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "cases.hpp"
#include "scripts.hpp"

namespace bench {

namespace {
constexpr const char* kStacks[] = {"openmpi", "mpich"};
constexpr const char* kFigures[] = {"load_first", "import", "cas", "publish"};
constexpr int kWindowSeconds = 60;

// A folder for a program that is compiled, and what its processes leave there.
class Folder {
 public:
  Folder() { must(mkdtemp(path_) != nullptr, "no folder in /tmp"); }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path() const { return path_; }

 private:
  char path_[24] = "/tmp/cmi-bench.XXXXXX";
};

std::string row_of_window(const std::string& figure, const std::string& stack) {
  return "local_" + figure + "_" + stack;
}

void windows_of(Bench& b, const std::string& stack) {
  const auto none = [&](const std::string& why) {
    for (const char* figure : kFigures) b.report.failed(row_of_window(figure, stack), why);
  };
  const std::string compiler = "mpicc." + stack, launcher = "mpirun." + stack;
  if (run_script("sh -c 'command -v " + compiler + " && command -v " + launcher + "'").status !=
      0) {
    return none(stack + " is not installed");
  }
  const Folder folder;
  const std::string program = folder.path() + "/windows";
  const Script compiled =
      run_script(compiler + " -O2 -o " + program + " " + CMI_BENCH_PEERS "/windows.c");
  if (compiled.status != 0) return none("windows.c is not compiled: " + compiled.output);
  const std::string options =
      stack == "openmpi" ? " -n 2 --oversubscribe --bind-to none --mca plm isolated " : " -n 2 ";
  const Script ran = run_script(
      "env TMPDIR=" + folder.path() +
      " OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " + launcher + options + program +
      " " + std::to_string(kWindowSeconds) + " " + std::to_string(b.scaled(0, 1)));
  if (ran.status != 0) return none("it failed: " + ran.output);
  std::istringstream lines(ran.output);
  for (std::string line; std::getline(lines, line);) {
    char figure[24], unit[8];
    Spread s;
    if (std::sscanf(line.c_str(), "row %23s %7s %lf %lf %lf %zu", figure, unit, &s.low, &s.median,
                    &s.high, &s.count) == 6) {
      b.report.row({row_of_window(figure, stack),
                    unit,
                    s,
                    {},
                    "the same in a shared window of " + stack,
                    0});
    }
  }
}
}  // namespace

std::vector<const char*> window_rows() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const char* stack : kStacks) {
      for (const char* figure : kFigures) all.push_back(row_of_window(figure, stack));
    }
    return all;
  }();
  std::vector<const char*> rows;
  for (const std::string& name : names) rows.push_back(name.c_str());
  return rows;
}

void windows(Bench& b) {
  for (const char* stack : kStacks) windows_of(b, stack);
}

// Beside a count in one process, which the program makes itself: its time divided by the processors
// that there are for the four.
void local_wordcount(Bench& b) {
  constexpr long kProcesses = 4;
  // This process is pinned to one of them.
  const long processors = std::clamp(sysconf(_SC_NPROCESSORS_ONLN), 1L, kProcesses);
  const std::string command = "env CMI_LOCAL=on " CMI_EXAMPLES
                              "/02-wordcount/run-demo " CMI_BUILD_DIR " --limit " +
                              std::to_string(b.scaled(64, 16));
  std::vector<double> ours, alone;
  for (size_t i = 0; i < b.scaled(5, 1); ++i) {
    const Script script = run_script(command);
    const size_t at = script.output.find("shared table: ");
    double together = 0, single = 0;
    must(script.status == 0 && at != std::string::npos &&
             std::sscanf(script.output.c_str() + at,
                         "shared table: %lf s, %*f MiB/s; one process alone: %lf s", &together,
                         &single) == 2,
         "wordcount: " + script.output);
    ours.push_back(together);
    alone.push_back(single / static_cast<double>(processors));
  }
  b.report.row({"local_wordcount", "s", spread_of(ours), spread_of(alone),
                "one process alone, divided by the processors", 0});
}

}  // namespace bench
