// random_check: plays random programs, seed after seed, each on nodes of its own, and has what they
// saw judged by the checker. Its processes are those of nodes.hpp, which start this program again.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "checker/check.hpp"
#include "checker/program.hpp"
#include "checker/random/faults.hpp"
#include "checker/random/options.hpp"
#include "checker/random/player.hpp"
#include "checker/random/record.hpp"
#include "core/base/clock.hpp"
#include "system/calls.hpp"
#include "system/nodes.hpp"

namespace cmi::checker {

namespace {

Options g_options;

constexpr int kPlayDeadline = 45;       // seconds, for one program: then a node hangs
constexpr uint64_t kMinCrossings = 10;  // of a program, or it has tested little

enum class Outcome { kLegal, kIllegal, kFailed };

struct Result {
  Outcome outcome = Outcome::kFailed;
  std::string text;  // why not legal
  Verdict verdict;
  uint64_t transients = 0;
};

// How far each thread came.
std::string progress(const Program& program, Record& record) {
  std::string text;
  for (uint32_t t = 0; t < program.threads.size(); ++t) {
    const ThreadRecord& thread = record.thread(t);
    const uint32_t ops = thread.ops.load();
    text += "\n  thread " + std::to_string(t) + " on node " +
            std::to_string(t / program.shape.threads) + ": ";
    if (thread.failure[0] != 0) text += std::string(thread.failure.data()) + ", ";
    text += thread.ended.load() != 0 ? "ended after " : "in ";
    text += "operation " + std::to_string(ops) + " of " + std::to_string(program.threads[t].size());
    if (ops != 0) text += std::string(", ") + op_name(program.threads[t][ops - 1].kind);
  }
  return text;
}

// The nodes of a program, with its segments shared among them.
class Stage {
 public:
  Stage(const Program& program, bool delays) : program_(program) {
    for (uint32_t n = 0; n < program.shape.nodes; ++n) {
      std::string faults = delays ? random_delays(program.shape.seed, n) : "";
      if (!g_options.mutation.empty()) {
        faults += (faults.empty() ? "" : ";") + g_options.mutation + "=fail";
      }
      processes_.push_back(
          &cluster_.spawn("node" + std::to_string(n), {{"CMI_FAULT_POINT", faults}}));
    }
    std::vector<Part> parts(program.shape.nodes);
    for (uint32_t s = 0; s < program.shape.segments; ++s) {
      const uint32_t home = program.homes[s];
      const test::Export exported =
          test::export_segment(*processes_[home], program.segment_bytes());
      for (uint32_t n = 0; n < program.shape.nodes; ++n) {
        parts[n].views[s] =
            n == home ? exported.at : test::import_segment(*processes_[n], exported).at;
      }
    }
    const std::string path = cluster_.scratch() + "/record";
    for (uint32_t n = 0; n < program.shape.nodes; ++n) {
      parts[n].shape = program.shape;
      parts[n].node = n;
      std::snprintf(parts[n].record.data(), parts[n].record.size(), "%s", path.c_str());
    }
    parts_ = parts;
    record_.emplace(path, program);
  }

  Result play() {
    Result result;
    try {
      std::vector<test::Pending<void>> running;
      const Deadline deadline = Deadline::in(kPlayDeadline * kSecond);
      for (uint32_t n = 0; n < processes_.size(); ++n) {
        running.push_back(start_playing(*processes_[n], parts_[n]));
      }
      for (auto& pending : running) {
        pending.get(1 + static_cast<int>(deadline.left() / kSecond));
      }
      for (uint32_t n = 0; n < processes_.size(); ++n) {
        if (!settle(*processes_[n])) throw test::ChildFailed("the last barrier failed");
      }
      for (uint32_t n = 0; n < processes_.size(); ++n) read_all(*processes_[n], parts_[n]);
    } catch (const test::ChildFailed& failure) {
      result.text = failure.what() + progress(program_, *record_);
      return result;
    }
    for (uint32_t t = 0; t < record_->threads(); ++t) {
      const ThreadRecord& thread = record_->thread(t);
      result.transients += thread.transients.load();
      if (thread.failure[0] != 0 && result.text.empty()) {
        result.text = thread.failure.data() + progress(program_, *record_);
      }
    }
    // A call that failed may have done anything; what was seen is judged all the same.
    result.verdict = check(record_->history(program_));
    if (!result.verdict.legal()) {
      const bool judged = result.verdict.fault != Fault::kMalformed;
      result.outcome = judged ? Outcome::kIllegal : Outcome::kFailed;
      result.text =
          std::string(fault_name(result.verdict.fault)) + ": " + result.verdict.explanation;
    } else if (result.text.empty()) {
      result.outcome = Outcome::kLegal;
    }
    return result;
  }

 private:
  const Program& program_;
  test::Cluster cluster_;
  std::vector<test::Process*> processes_;
  std::vector<Part> parts_;
  std::optional<Record> record_;
};

std::string describe(const Program& program, bool delays) {
  const Shape& shape = program.shape;
  return "seed " + std::to_string(shape.seed) + ": " + std::to_string(shape.nodes) + " nodes of " +
         std::to_string(shape.threads) + " threads, " + std::to_string(program.cells.size()) +
         " cells on " + std::to_string(shape.segments * program.pages) + " pages of " +
         std::to_string(shape.segments) + " segments" + (delays ? ", with delays" : "");
}

Result play_seed(uint64_t seed) {
  Shape shape = g_options.shape;
  shape.seed = seed;
  const Program program = make_program(shape);
  const bool delays = g_options.delays < 0 ? seed % 2 == 0 : g_options.delays != 0;
  const Nanos begin = now();
  Result result = Stage(program, delays).play();
  if (result.outcome == Outcome::kLegal && result.verdict.crossings < kMinCrossings) {
    result.outcome = Outcome::kFailed;
    result.text = "only " + std::to_string(result.verdict.crossings) + " values crossed";
  }
  if (g_options.verbose || result.outcome != Outcome::kLegal) {
    const Verdict& v = result.verdict;
    std::printf(
        "%s; %llu accesses, %llu crossings, %llu bound, %llu swapped, %.1f s\n",
        describe(program, delays).c_str(), static_cast<unsigned long long>(v.accesses),
        static_cast<unsigned long long>(v.crossings), static_cast<unsigned long long>(v.bound),
        static_cast<unsigned long long>(v.swapped), static_cast<double>(now() - begin) / kSecond);
  }
  if (result.outcome != Outcome::kLegal) {
    std::printf("%s\nreplay: %s\n", result.text.c_str(), replay(g_options, seed).c_str());
  }
  std::fflush(stdout);
  return result;
}

TEST_CASE("random_programs_see_what_the_memory_model_allows") {
  const Deadline deadline = Deadline::in(g_options.seconds * kSecond);
  uint64_t programs = 0;
  Verdict sum;
  uint64_t transients = 0;
  Outcome outcome = Outcome::kLegal;
  for (uint64_t seed = g_options.shape.seed; outcome == Outcome::kLegal && !deadline.passed();
       seed += !g_options.one_seed) {
    const Result result = play_seed(seed);
    outcome = result.outcome;
    ++programs;
    sum.accesses += result.verdict.accesses;
    sum.crossings += result.verdict.crossings;
    sum.bound += result.verdict.bound;
    sum.swapped += result.verdict.swapped;
    transients += result.transients;
  }
  std::printf(
      "%llu programs: %llu accesses, %llu values crossed from node to node, %llu loads bound by a "
      "publication, %llu swaps, %llu transient errors\n",
      static_cast<unsigned long long>(programs), static_cast<unsigned long long>(sum.accesses),
      static_cast<unsigned long long>(sum.crossings), static_cast<unsigned long long>(sum.bound),
      static_cast<unsigned long long>(sum.swapped), static_cast<unsigned long long>(transients));
  CHECK(outcome == (g_options.expect_violation ? Outcome::kIllegal : Outcome::kLegal));
}

int run(int argc, char** argv) {
  doctest::Context context;
  context.setOption("no-intro", true);
  // A process of a stage, which never comes back from run().
  if (std::getenv("CMI_TEST_CHANNEL") != nullptr) return context.run();
  if (!parse(argc, argv, &g_options)) return 2;
  const std::vector<std::string> mutations = library_mutations();
  if (g_options.list_mutations) {
    for (const std::string& name : mutations) std::printf("%s\n", name.c_str());
    return 0;
  }
  for (const std::string& point : unknown_delays()) {
    std::fprintf(stderr, "the library has no fault point %s\n", point.c_str());
    return 2;
  }
  if (!g_options.mutation.empty() &&
      std::find(mutations.begin(), mutations.end(), g_options.mutation) == mutations.end()) {
    std::fprintf(stderr, "the library has no mutation %s\n", g_options.mutation.c_str());
    return 2;
  }
  return context.run();
}

}  // namespace

}  // namespace cmi::checker

int main(int argc, char** argv) { return cmi::checker::run(argc, argv); }
