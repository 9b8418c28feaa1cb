// Injects each fault again and again and says what a client noticed and when. Each injection is a
// process of its own (--one), because a network needs one. With --write FILE the table between the
// two marks in FILE is made anew.
//
//   cmi_reliability [--count N] [--only NAME] [--write FILE] [--dead-after MS] [--list]
//
// Ends with 1 if a fault was not noticed as it must be, or too late for a bound that it has.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "reliability/faults.hpp"

extern char** environ;

namespace cmi::test {
void skip(const char* reason) { std::printf("SKIPPED: %s\n", reason); }
}  // namespace cmi::test

namespace cmi::reliability {

namespace {

constexpr const char* kBegin = "<!-- injected: begin -->";
constexpr const char* kEnd = "<!-- injected: end -->";

constexpr size_t kMany = 100;  // injections of which each counts
constexpr int kBestOf = 3;     // so many are tried until one is within its bounds

const Kind* g_kind = nullptr;  // of this injection

const Kind* find_kind(const std::string& name) {
  for (const Kind& k : kinds()) {
    if (name == k.name) return &k;
  }
  return nullptr;
}

TEST_CASE("one_injection") {
  const Seen seen = g_kind->inject();
  if (seen.skipped.empty()) {
    std::printf("\nSEEN %.3f %.3f %s\n", seen.ms, seen.also, seen.what.c_str());
  } else {
    std::printf("\nSKIPPED %s\n", seen.skipped.c_str());
  }
  std::fflush(stdout);
}

struct Running {
  pid_t pid;
  int out;
};

Running start(const Kind& kind) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) std::exit(2);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  std::string self = "/proc/self/exe", one = "--one", name = kind.name;
  char* arguments[] = {self.data(), one.data(), name.data(), nullptr};
  pid_t pid = -1;
  if (posix_spawn(&pid, self.c_str(), &actions, nullptr, arguments, environ) != 0) std::exit(2);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  return {pid, ends[0]};
}

struct Result {
  std::vector<double> ms, also;
  std::map<std::string, int> what;
  std::string skipped, failure;
};

void finish(const Running& running, const Kind& kind, Result* result) {
  std::string said;
  char buffer[4096];
  for (ssize_t n; (n = ::read(running.out, buffer, sizeof buffer)) > 0;) {
    said.append(buffer, static_cast<size_t>(n));
  }
  ::close(running.out);
  int status = 0;
  ::waitpid(running.pid, &status, 0);
  if (const size_t at = said.find("\nSKIPPED "); at != std::string::npos) {
    result->skipped = said.substr(at + 9, said.find('\n', at + 1) - at - 9);
    return;
  }
  const size_t at = said.find("\nSEEN ");
  if (at == std::string::npos || status != 0) {
    result->failure = said;
    return;
  }
  std::istringstream in(said.substr(at + 6));
  double ms = 0, also = 0;
  std::string what;
  in >> ms >> also;
  std::getline(in >> std::ws, what);
  result->ms.push_back(ms);
  result->also.push_back(also);
  ++result->what[what];
  const bool right =
      kind.expect[0] != '\0' ? what.find(kind.expect) != std::string::npos : !what.empty();
  if (!right) result->failure = "noticed: " + what;
}

double median_of(const std::vector<double>& sorted) { return sorted[sorted.size() / 2]; }

// What is beyond the bound; empty: nothing.
std::string beyond(const Bound& bound, const std::vector<double>& sorted) {
  const auto said = [&](const char* what, double value, double most) {
    if (most == 0 || value <= most) return std::string();
    char text[128];
    std::snprintf(text, sizeof text, "the %s of %zu is %.1f, may be %.1f at most\n", what,
                  sorted.size(), value, most);
    return std::string(text);
  };
  if (sorted.empty()) return "";
  if (sorted.size() < kMany) return said("best", sorted[0], std::max(bound.worst, bound.median));
  return said("worst", sorted.back(), bound.worst) +
         said("median", median_of(sorted), bound.median);
}

Result inject(const Kind& kind, int count) {
  Result result;
  const auto within_bounds = [&] {
    std::sort(result.ms.begin(), result.ms.end());
    std::sort(result.also.begin(), result.also.end());
    return beyond(kind.bound, result.ms).empty() && beyond(kind.also_bound, result.also).empty();
  };
  const auto goes_on = [&](int done) {
    return result.skipped.empty() &&
           (done < count || (done < kBestOf && result.failure.empty() && !within_bounds()));
  };
  for (int done = 0; goes_on(done);) {
    std::vector<Running> running;
    const int more = std::max(count - done, 1);
    for (int i = 0; i < std::min(kind.together, more); ++i) running.push_back(start(kind));
    for (const Running& r : running) finish(r, kind, &result);
    done += static_cast<int>(running.size());
  }
  if (!within_bounds() && result.failure.empty()) {
    result.failure = beyond(kind.bound, result.ms) + beyond(kind.also_bound, result.also);
  }
  return result;
}

// An item of a list, in lines that tools/check/prose.py lets pass.
std::string item(const std::string& text) {
  constexpr size_t kWidth = 118;
  std::string lines, line = "-", word;
  for (std::istringstream words(text); words >> word; line += " " + word) {
    if (line.size() + 1 + word.size() <= kWidth) continue;
    lines += line + "\n";
    line = " ";
  }
  return lines + line + "\n";
}

std::string row(const Kind& kind, const Result& result, const char* when,
                const std::vector<double>& values) {
  // The most frequent first.
  std::vector<std::pair<int, std::string>> what;
  for (auto& [text, times] : result.what) what.emplace_back(times, text);
  std::sort(what.rbegin(), what.rend());
  std::string seen;
  for (auto& [times, text] : what) {
    seen += seen.empty() ? text : "; " + text + " (" + std::to_string(times) + ")";
  }
  char numbers[96];
  std::snprintf(numbers, sizeof numbers, "%.1f (median), %.1f (worst), %zu injections",
                median_of(values), values.back(), values.size());
  return item("**" + std::string(kind.fault) + "**: " + when + ": " + numbers +
              ". *Seen*: " + seen + ". *Lost*: " + kind.lost + ".");
}

bool write_table(const std::string& file, const std::string& table) {
  std::ifstream in(file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t begin = text.find(kBegin), end = text.find(kEnd);
  if (begin == std::string::npos || end == std::string::npos || end < begin) return false;
  std::ofstream out(file);
  out << text.substr(0, begin) << kBegin << "\n" << table << text.substr(end);
  return static_cast<bool>(out);
}

int run_all(int count, const std::string& only, const std::string& file) {
  std::string table = "\n";
  bool good = true;
  for (const Kind& kind : kinds()) {
    if (!only.empty() && only != kind.name) continue;
    const Result result = inject(kind, count);
    if (!result.skipped.empty()) {
      std::printf("%s: skipped: %s\n", kind.name, result.skipped.c_str());
      continue;
    }
    if (!result.failure.empty()) {
      std::printf("%s: FAILED\n%s\n", kind.name, result.failure.c_str());
      good = false;
    }
    if (result.ms.empty()) continue;
    std::string line = row(kind, result, kind.when, result.ms);
    if (kind.also != nullptr) line += row(kind, result, kind.also, result.also);
    std::fputs(line.c_str(), stdout);
    std::fflush(stdout);
    table += line;
  }
  table += "\n";
  if (good && !file.empty() && !write_table(file, table)) {
    std::fprintf(stderr, "%s: cannot be written, or has no marks\n", file.c_str());
    return 2;
  }
  return good ? 0 : 1;
}

int run(int argc, char** argv) {
  doctest::Context context;
  context.setOption("no-intro", true);
  // A process of a cluster, which never comes back from run().
  if (std::getenv("CMI_TEST_CHANNEL") != nullptr) return context.run();
  int count = 3;
  std::string only, file;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const bool more = i + 1 < argc;
    if (option == "--list") {
      for (const Kind& k : kinds()) std::printf("%s: %s\n", k.name, k.fault);
      return 0;
    } else if (option == "--one" && more && (g_kind = find_kind(argv[i + 1])) != nullptr) {
      return context.run();
    } else if (option == "--count" && more && (count = std::atoi(argv[i + 1])) > 0) {
      ++i;
    } else if (option == "--only" && more && find_kind(argv[i + 1]) != nullptr) {
      only = argv[++i];
    } else if (option == "--dead-after" && more) {
      ::setenv("CMI_RELIABILITY_DEAD_AFTER", argv[++i], 1);
    } else if (option == "--write" && more) {
      file = argv[++i];
    } else {
      std::fprintf(stderr,
                   "usage: cmi_reliability [--count N] [--only NAME] [--write FILE] "
                   "[--dead-after MS] [--list]\n");
      return 2;
    }
  }
  return run_all(count, only, file);
}

}  // namespace

}  // namespace cmi::reliability

int main(int argc, char** argv) { return cmi::reliability::run(argc, argv); }
