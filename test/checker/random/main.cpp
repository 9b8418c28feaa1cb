// random_check: plays random programs, seed after seed, each seed on nodes of its own, and has what
// they saw judged by the checker. Its processes are those of nodes.hpp, which start this program
// again.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
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
#include "support/large_pages.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"
#include "system/nodes.hpp"

namespace cmi::checker {

namespace {

Options g_options;

constexpr uint32_t kRounds = 8;         // programs of a seed, on the same nodes
constexpr int kPlayDeadline = 45;       // seconds, for one program: then a node hangs
constexpr uint64_t kMinCrossings = 20;  // of a seed, or it has tested little
constexpr uint64_t kMinSeeds = 8;       // of which some must have swapped

enum class Outcome { kLegal, kIllegal, kFailed };

Outcome g_outcome = Outcome::kFailed;  // of the run

struct Result {
  Outcome outcome = Outcome::kFailed;
  std::string text;  // why not legal
  Verdict verdict;
  uint64_t transients = 0;
};

// Whether the segment is client-consistent: half of them, so that a first store waits for nobody.
bool consistent(const Shape& shape, uint32_t segment) {
  return (shape.seed / 2 + shape.seed / 16 + segment) % 2 == 0;  // apart from delays and kernels
}

// How far each thread came.
std::string progress(const Program& program, Record& record) {
  std::string text;
  for (uint32_t t = 0; t < program.threads.size(); ++t) {
    const ThreadRecord& thread = record.thread(t);
    const uint32_t ops = thread.ops.load();
    text += "\n  thread " + std::to_string(t) + " on node " +
            std::to_string(t / program.shape.threads) + ", process " +
            std::to_string(program.process_of(t)) + ": ";
    if (thread.failure[0] != 0) text += std::string(thread.failure.data()) + ", ";
    text += thread.ended.load() != 0 ? "ended after " : "in ";
    text += "operation " + std::to_string(ops) + " of " + std::to_string(program.threads[t].size());
    if (ops != 0) text += std::string(", ") + op_name(program.threads[t][ops - 1].kind);
  }
  return text;
}

// Half of the seeds in the usual way, a quarter as on Linux 6.1, a quarter in a thread, of which
// every other one as on 6.6; and of each kind every other one has delays.
Kernel kernel_of(uint64_t seed) {
  constexpr std::array kTurns{Kernel::kThis, Kernel::kThis, Kernel::kThread,    Kernel::kOld,
                              Kernel::kThis, Kernel::kThis, Kernel::kOldThread, Kernel::kOld};
  if (g_options.kernel != Kernel::kBySeed) return g_options.kernel;
  const Kernel turn = kTurns[seed / 2 % kTurns.size()];
  const bool in_thread = turn == Kernel::kThread || turn == Kernel::kOldThread;
  return in_thread && !test::fault_threads_possible() ? Kernel::kThis : turn;
}

const char* kernel_name(Kernel kernel) {
  return kernel == Kernel::kOld         ? ", as on Linux 6.1"
         : kernel == Kernel::kThread    ? ", faults in a thread"
         : kernel == Kernel::kOldThread ? ", faults in a thread as on Linux 6.6"
                                        : "";
}

// The nodes that play all rounds of a seed.
class Stage {
 public:
  Stage(const Program& program, bool delays) {
    const uint64_t seed = program.shape.seed;
    const Kernel kernel = kernel_of(seed);
    for (uint32_t p = 0; p < program.processes.size(); ++p) {
      std::string faults = delays ? random_delays(seed, p) : "";
      if (!g_options.mutation.empty()) {
        faults += (faults.empty() ? "" : ";") + g_options.mutation + "=fail";
      }
      test::Env env{{"CMI_FAULT_POINT", faults}};
      if (kernel == Kernel::kOld) env.emplace_back("CMI_KERNEL", "6.1");
      if (kernel == Kernel::kOldThread) env.emplace_back("CMI_KERNEL", "6.6");
      if (kernel == Kernel::kThread || kernel == Kernel::kOldThread) {
        env.emplace_back("CMI_FAULT", "thread");
      }
      const std::string node = "node" + std::to_string(program.processes[p]);
      processes_.push_back(&cluster_.spawn(node, env));
    }
  }

  Result play(const Program& program) {
    const std::string path = cluster_.scratch() + "/record" + std::to_string(program.shape.round);
    Record record(path, program);
    Result result;
    try {
      Props props(*this, program, path);
      perform(props.parts);
      props.remove();
    } catch (const test::ChildFailed& failure) {
      result.text = failure.what() + progress(program, record);
      return result;
    }
    for (uint32_t t = 0; t < record.threads(); ++t) {
      const ThreadRecord& thread = record.thread(t);
      result.transients += thread.transients.load();
      if (thread.failure[0] != 0 && result.text.empty()) {
        result.text = thread.failure.data() + progress(program, record);
      }
    }
    // A call that failed may have done anything; what was seen is judged all the same.
    const History history = record.history(program);
    result.verdict = check(history);
    if (!result.verdict.legal()) {
      if (!g_options.dump.empty()) dump(history, g_options.dump);
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
  // The segments of one program, made, shared and taken away again.
  struct Props {
    Props(Stage& stage, const Program& program, const std::string& record)
        : processes(stage.processes_), parts(processes.size()) {
      for (uint32_t p = 0; p < processes.size(); ++p) {
        parts[p].shape = program.shape;
        parts[p].process = p;
        std::snprintf(parts[p].record.data(), parts[p].record.size(), "%s", record.c_str());
      }
      for (uint32_t s = 0; s < program.shape.segments; ++s) {
        const uint32_t home = program.homes[s];
        const test::Export made =
            test::export_segment(*processes[home], program.segment_bytes(), test::kAllRights,
                                 (g_options.large_pages ? CMI_SEG_LARGE_PAGES : 0) |
                                     (consistent(program.shape, s) ? CMI_SEG_CLIENT_CONSIST : 0));
        std::vector<cmi_seg> of_node(program.shape.nodes);
        of_node[home] = made.seg;
        segments.push_back({home, made.seg, made.at, true});
        parts[home].views[s] = made.at;
        for (uint32_t p = 0; p < processes.size(); ++p) {
          if (p == home) continue;
          const uint32_t node = program.processes[p];
          const bool second = p >= program.shape.nodes;
          const test::Import import = second ? attach(*processes[p], of_node[node])
                                             : test::import_segment(*processes[p], made);
          of_node[node] = import.seg;
          segments.push_back({p, import.seg, import.at, !second});
          parts[p].views[s] = import.at;
        }
      }
    }
    void remove() {
      for (auto at = segments.rbegin(); at != segments.rend(); ++at) {
        if (at->own) CHECK(test::seg_rm(*processes[at->process], at->seg).ok());
        CHECK(test::seg_dt(*processes[at->process], at->seg, at->view).ok());
      }
    }

    // What another process of the node has made or imported.
    static test::Import attach(test::Process& process, cmi_seg seg) {
      REQUIRE(test::cmi_enb(process, 1).ok());
      const test::Answer view = test::seg_at(process, seg);
      REQUIRE_MESSAGE(view.ok(), "seg_at: ", view);
      return {seg, view.at()};
    }

    struct Attached {
      uint32_t process;
      cmi_seg seg;
      uint64_t view;
      bool own;  // made or imported by this process
    };
    std::vector<test::Process*>& processes;
    std::vector<Part> parts;
    std::vector<Attached> segments;
  };

  void perform(const std::vector<Part>& parts) {
    std::vector<test::Pending<void>> running;
    const Deadline deadline = Deadline::in(kPlayDeadline * kSecond);
    for (uint32_t p = 0; p < parts.size(); ++p) {
      running.push_back(start_playing(*processes_[p], parts[p]));
    }
    for (auto& pending : running) pending.get(1 + static_cast<int>(deadline.left() / kSecond));
    for (uint32_t p = 0; p < parts.size(); ++p) {
      if (settle(*processes_[p], parts[p])) continue;
      throw test::ChildFailed(processes_[p]->name() + ": the last barrier failed");
    }
    for (uint32_t p = 0; p < parts.size(); ++p) read_all(*processes_[p], parts[p]);
  }

  test::Cluster cluster_;
  std::vector<test::Process*> processes_;
};

bool sharing(const Program& program) { return program.processes.size() > program.shape.nodes; }

std::string describe(const Program& program, bool delays) {
  const Shape& shape = program.shape;
  return "seed " + std::to_string(shape.seed) + " round " + std::to_string(shape.round) + ": " +
         std::to_string(shape.nodes) + " nodes of " + std::to_string(shape.threads) + " threads" +
         (sharing(program) ? " in " + std::to_string(program.processes.size()) + " processes, "
                           : ", ") +
         std::to_string(program.cells.size()) + " cells on " +
         std::to_string(shape.segments * program.pages) + " pages of " +
         std::to_string(shape.segments) + " segments" + (delays ? ", with delays" : "") +
         kernel_name(kernel_of(shape.seed));
}

std::string describe(const Verdict& v) {
  return std::to_string(v.accesses) + " accesses, " + std::to_string(v.crossings) +
         " values crossed from node to node, " + std::to_string(v.bound) +
         " loads bound by a publication, " + std::to_string(v.swapped) + " swaps";
}

// Adds what was seen to `sum`.
Outcome play_seed(uint64_t seed, Deadline deadline, Verdict* sum, uint64_t* transients,
                  uint64_t* shared) {
  Shape shape = g_options.shape;
  shape.seed = seed;
  const Program first = make_program(shape);
  shape.nodes = first.shape.nodes;
  shape.sharing = first.shape.sharing;
  const bool delays = g_options.delays < 0 ? seed % 2 == 0 : g_options.delays != 0;
  Stage stage(first, delays);
  *shared += sharing(first);
  for (; shape.round < kRounds && !(shape.round > 0 && deadline.passed()); ++shape.round) {
    const Program program = make_program(shape);
    const Result result = stage.play(program);
    sum->accesses += result.verdict.accesses;
    sum->crossings += result.verdict.crossings;
    sum->bound += result.verdict.bound;
    sum->swapped += result.verdict.swapped;
    *transients += result.transients;
    const bool legal = result.outcome == Outcome::kLegal;
    if (g_options.verbose || !legal) {
      std::printf("%s: %s\n", describe(program, delays).c_str(), describe(result.verdict).c_str());
    }
    if (!legal) {
      std::printf("%s\nreplay: %s\n", result.text.c_str(), replay(g_options, seed).c_str());
      return result.outcome;
    }
  }
  return Outcome::kLegal;
}

TEST_CASE("random_programs_see_what_the_memory_model_allows") {
  const Deadline deadline = Deadline::in(g_options.seconds * kSecond);
  uint64_t seeds = 0;
  uint64_t transients = 0, shared = 0;
  Verdict all;
  Outcome outcome = Outcome::kLegal;
  // What is broken on purpose may also make a node crash or hang, which proves nothing.
  const auto go_on = [&] {
    return outcome == Outcome::kLegal ||
           (outcome == Outcome::kFailed && g_options.expect_violation);
  };
  for (uint64_t seed = g_options.shape.seed; go_on() && !deadline.passed();
       seed += !g_options.one_seed) {
    CAPTURE(seed);
    Verdict sum;
    outcome = play_seed(seed, deadline, &sum, &transients, &shared);
    if (outcome == Outcome::kLegal && (sum.crossings < kMinCrossings || sum.bound == 0)) {
      std::printf("seed %llu: %s: too little to judge\n", static_cast<unsigned long long>(seed),
                  describe(sum).c_str());
      outcome = Outcome::kFailed;
    }
    ++seeds;
    all.accesses += sum.accesses;
    all.crossings += sum.crossings;
    all.bound += sum.bound;
    all.swapped += sum.swapped;
    std::fflush(stdout);
  }
  std::printf("%llu seeds, %llu of them with processes that share: %s, %llu transient errors\n",
              static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(shared),
              describe(all).c_str(), static_cast<unsigned long long>(transients));
  if (outcome == Outcome::kLegal && seeds >= kMinSeeds && all.swapped == 0) {
    std::printf("no swap has found what it compared with\n");
    outcome = Outcome::kFailed;
  }
  g_outcome = outcome;
  CHECK((outcome == Outcome::kLegal || g_options.expect_violation));
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
  std::optional<test::LargePages> large;
  if (g_options.large_pages && !large.emplace(2 * kMaxSegments).enough()) {
    std::printf("left out: %s\n", large->reason());
    return test::kSkippedStatus;
  }
  const int failed = context.run();
  if (g_options.expect_violation) return g_outcome == Outcome::kIllegal ? 0 : 1;
  return failed;
}

}  // namespace

}  // namespace cmi::checker

int main(int argc, char** argv) { return cmi::checker::run(argc, argv); }
