// The fault sweep of the random checker: a random program on three nodes, two of them homes, played
// once for each fault point of the library with one node killed there, or with the point failing
// there where it can fail. The survivors go on: what meets the dead ends in the right error, all
// else is as ever, nobody hangs or crashes and nothing is left behind. What all had seen by then,
// the dead as far as its record got, is judged by the checker, whose rules for a death stand in
// checker/check.hpp. Then a new process comes up on the node of the dead and plays with the others.
//
// A program without a fault comes first and tells which points which node passes, and how often: so
// each point is armed where it is passed, at a passage that the seed chooses. One that this
// workload does not come past (sweep_test.cpp comes past all of them) must leave everything right.
//
// CMI_SWEEP_POINT names one point to be played alone, CMI_TEST_SEED the programs and the choices;
// CMI_SWEEP_AT=NODE#PASSAGE says where a failure was. CMI_SWEEP_BROKEN breaks the nodes that live
// on (mutate_dirty_dropped=fail), to see that it is noticed.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checker/check.hpp"
#include "checker/program.hpp"
#include "checker/random/player.hpp"
#include "checker/random/record.hpp"
#include "core/base/clock.hpp"
#include "support/passages.hpp"
#include "system/calls.hpp"

namespace cmi::test::random_sweep_test {

namespace {

using checker::Program;
using checker::Record;
using checker::Shape;
using checker::ThreadRecord;

struct Point {
  std::string_view name;
  bool fails;  // takes an error path; else a place to die at
};
constexpr Point kPoints[] = {
#define FAULT_POINT(name, fails) {name, fails},
#include "fault_points.inc"
#undef FAULT_POINT
};
constexpr int kShares = 6;
constexpr size_t kLeastReached = 7;  // points of a share, or this workload says little

constexpr uint32_t kNodes = 3, kThreads = 2, kOps = 150;
constexpr int kNewsDeadline = 10;  // seconds, until those who live must have heard of a death

struct Armed {
  Point point;
  uint32_t node = 0;
  uint64_t passage = 1;
};

uint64_t seed_from_environment() {
  const char* text = std::getenv("CMI_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 0) : 1;
}

// The first from `seed` on with homes on the first two nodes: so each kind of node is there, both
// homes, which are importers as well, and one that only imports.
Shape shape_from(uint64_t seed) {
  for (Shape shape{seed, kNodes, kThreads, 2, kOps, 0, 1};; shape.seed += 2) {
    if (checker::make_program(shape).homes == std::vector<uint32_t>{0, 1}) return shape;
  }
}

// Of two segments one has its dead importers' pages in flux, the other has not.
bool consistent(const Shape& shape, uint32_t segment) { return (shape.seed + segment) % 2 == 0; }

// The victim is gone, or lacks something: what is being set up has to begin again.
struct Again {};

class Scene {
 public:
  // Without a fault all nodes count what they pass.
  Scene(const Shape& shape, const std::optional<Armed>& fault) : shape_(shape), fault_(fault) {
    for (uint32_t n = 0; n < kNodes; ++n) {
      Env env;
      if (unanswered()) env.emplace_back("CMI_DEAD_AFTER", "1000");
      if (!fault || fault->node == n) env.emplace_back("CMI_FAULT_COUNT", counts(n));
      std::string faults;
      if (fault && fault->node == n) {
        faults = std::string(fault->point.name) + "#" + std::to_string(fault->passage) +
                 (fault->point.fails ? "=fail;" : "=kill;");
      }
      if (const char* broken = std::getenv("CMI_SWEEP_BROKEN")) faults += broken;
      env.emplace_back("CMI_FAULT_POINT", faults);
      nodes_[n] = &cluster_.spawn_bare(name(n), env);
    }
  }

  void play() {
    start();
    round(0);
    if (!fault_) {
      for (Process* node : nodes_) CHECK(node->end() == 0);
      return;
    }
    if (in_danger()) end_victim();
    if (!replaced_ && died_) {
      replace();
      round(1);
    }
  }

  // What node `n` came past; of the faulty one, where there is one.
  Passages passed(uint32_t n) const { return read_passages(counts(n)); }
  // Whether the fault took place.
  bool reached() const {
    if (!fault_->point.fails) return died_;
    const Passages all = passed(fault_->node);
    const auto found = all.find(std::string(fault_->point.name));
    return found != all.end() && found->second >= fault_->passage;
  }
  const checker::Verdict& verdict() const { return verdict_; }

 private:
  static std::string name(uint32_t n) { return "node" + std::to_string(n); }
  std::string counts(uint32_t n) const { return cluster_.scratch() + "/counts" + name(n); }
  // The victim lives and has its fault before it.
  bool in_danger() const { return fault_ && !died_ && !replaced_; }
  bool is_victim(uint32_t n) const { return fault_ && fault_->node == n && !replaced_; }
  bool lives(uint32_t n) const { return !(died_ && is_victim(n)); }

  // Whether the victim is dead; waits a moment for one that may be dying.
  bool dead(int seconds = 1) {
    if (in_danger()) {
      try {
        const int status = nodes_[fault_->node]->wait_end(seconds);
        died_ = true;
        CHECK_MESSAGE(died_by(status, SIGKILL), describe_status(status));
        CHECK_MESSAGE(!fault_->point.fails, "killed at a point that fails");
      } catch (const ChildFailed&) {
        return false;  // it lives
      }
    }
    return died_ && !replaced_;
  }
  void replace() {
    nodes_[fault_->node] = &cluster_.spawn(name(fault_->node));
    replaced_ = true;
  }

  // Has the node do something. False when that is the victim, and it is dead, now or before.
  template <class F>
  bool let(uint32_t n, F act) {
    if (!lives(n)) return false;
    try {
      act(*nodes_[n]);
      return true;
    } catch (const ChildFailed&) {
      if (is_victim(n) && dead()) return false;
      throw;
    }
  }
  // The same where nothing makes sense without it.
  template <class F>
  void must(uint32_t n, F act) {
    if (!let(n, act)) throw Again{};
  }
  // What must succeed, unless the victim is dead, or lacks what the fault takes away.
  template <class R>
  void good(uint32_t n, const R& result, const char* what) {
    if (result.ok() || dead()) {
      if (!result.ok()) throw Again{};
      return;
    }
    // Where a home has no room for an importer, the importer is told.
    const bool lacks = is_victim(n) || fault_->point.name == "sharers_full";
    const bool says_why = lacks && fault_->point.fails && result.error == CMI_ERR_NOMEM;
    REQUIRE_MESSAGE(says_why, what, " on ", name(n), ": error ", result.error);
    throw Again{};
  }

  void start() {
    std::vector<Pending<Answer>> starting;
    for (Process* node : nodes_) {
      starting.push_back(node->start([] { return start_context(CMI_VERNO); }));
    }
    for (uint32_t n = 0; n < kNodes; ++n) {
      bool refused = false;
      if (!let(n,
               [&](Process&) {
                 const Answer started = starting[n].get();
                 refused = is_victim(n) && fault_->point.name == "kernel_has_larger_pages" &&
                           started.failed(CMI_ERR_NOTSUPP);
                 REQUIRE_MESSAGE((started.ok() || refused), "cmi_ini on ", name(n), ": ", started);
               }) ||
          refused) {
        replace();
      }
    }
  }

  // ---- A round: a program on new segments ---------------------------------------------------

  void round(uint32_t number) {
    shape_.round = number;
    const Program program = checker::make_program(shape_);
    for (int tries = 0;; ++tries) {
      parts_.assign(kNodes, {});
      attached_.clear();
      try {
        set_up(program);
        break;
      } catch (const Again&) {
        REQUIRE(tries == 0);  // there is one fault
        tear_down();
        if (dead(0)) replace();
      }
    }
    const std::string path = cluster_.scratch() + "/record" + std::to_string(number);
    Record record(path, program);
    settled_ = 0;
    perform(program, record, path);
    // The victim may die in here, too: then those that live come to terms with that.
    for (bool known = false;;) {
      const bool death = died_ && !replaced_;
      if (death && !known) come_to_terms(program);
      known = death;
      settle_and_read(program);
      if ((died_ && !replaced_) == known) break;
    }
    judge(program, record);
    tear_down();
  }

  void set_up(const Program& program) {
    for (uint32_t n = 0; n < kNodes; ++n) {
      parts_[n].shape = program.shape;
      parts_[n].process = n;
      parts_[n].mortal = in_danger();
    }
    for (uint32_t s = 0; s < program.shape.segments; ++s) {
      const uint32_t home = program.homes[s];
      Flat handle, token;
      must(home, [&](Process& p) {
        const Answer made = seg_get(p, program.segment_bytes() + kPage,  // the last: see knock()
                                    consistent(shape_, s) ? CMI_SEG_CLIENT_CONSIST : 0);
        good(home, made, "seg_get");
        attach(home, s, made.seg());
        handle = seg_exp(p, made.seg());
        good(home, handle, "seg_exp");
        token = tok_new(p, made.seg(), kAllRights);
        good(home, token, "tok_new");
      });
      for (uint32_t n = 0; n < kNodes; ++n) {
        if (n == home) continue;
        must(n, [&](Process& p) {
          const Answer imported = seg_imp(p, handle);
          good(n, imported, "seg_imp");
          attached_.push_back({n, s, imported.seg(), 0});
          good(n, cmi_enb(p, 1), "cmi_enb");
          good(n, set_token(p, imported.seg(), token), "CMI_SEG_TOKEN");
          attached_.pop_back();
          attach(n, s, imported.seg());
        });
      }
    }
  }
  void attach(uint32_t n, uint32_t s, cmi_seg seg) {
    attached_.push_back({n, s, seg, 0});
    const Answer attached = seg_at(*nodes_[n], seg);
    good(n, attached, "seg_at");
    attached_.back().view = parts_[n].views[s] = attached.at();
  }
  // Who lives can always take away what it has, though the home may be dead.
  void tear_down() {
    for (auto at = attached_.rbegin(); at != attached_.rend(); ++at) {
      let(at->node, [&](Process& p) {
        const Answer removed = seg_rm(p, at->seg);
        CHECK_MESSAGE((removed.ok() || dead()), "seg_rm on ", name(at->node), ": ", removed);
        if (at->view == 0) return;
        const Answer detached = seg_dt(p, at->seg, at->view);
        CHECK_MESSAGE((detached.ok() || dead()), "seg_dt on ", name(at->node), ": ", detached);
      });
    }
    attached_.clear();
  }

  void perform(const Program& program, Record& record, const std::string& path) {
    std::map<uint32_t, Pending<void>> playing;
    for (uint32_t n = 0; n < kNodes; ++n) {
      std::snprintf(parts_[n].record.data(), parts_[n].record.size(), "%s", path.c_str());
      let(n, [&](Process& p) { playing.emplace(n, checker::start_playing(p, parts_[n])); });
    }
    // Nobody waits at the gate for one who has died on the way there.
    const Deadline deadline = Deadline::in(kSeconds * kSecond);
    while (record.gate().arrived.load() < program.threads.size() && !dead(0)) {
      REQUIRE_MESSAGE(!deadline.passed(), "somebody does not begin");
      ::usleep(500);
    }
    record.gate().open = 1;
    for (auto& [n, pending] : playing) {
      let(n, [&, &mine = pending](Process&) { mine.get(unanswered() ? 3 * kSeconds : kSeconds); });
    }
  }

  bool home_is_dead(const Program& program, uint32_t s) const { return !lives(program.homes[s]); }
  // The one fault with which a home lives on and owes the answer to a invalidation round for ever:
  // its importers are told in the end that their stores may be lost, and lose their access, or have
  // their swaps answered with TRANSIENT for as long as they try.
  bool unanswered() const { return fault_ && fault_->point.name == "round_never_over"; }
  // Whether a barrier may say that something was lost.
  bool some_loss(const Program& program) const {
    return home_is_dead(program, 0) || home_is_dead(program, 1) || unanswered();
  }
  // Whether a thread may leave the segment alone for this cause; -1: a swap of unknown fate.
  bool may_leave(const Program& program, uint32_t s, int cause) const {
    if (home_is_dead(program, s)) return cause == CMI_ERROR_SINVAL || cause == -1;
    if (died_ && !replaced_) return cause == CMI_ERROR_CONSIST && !consistent(shape_, s);
    return unanswered() && is_victim(program.homes[s]) &&
           (cause == CMI_ERROR_TOKEN || cause == CMI_ERROR_TRANSIENT);
  }

  // Homes that live hear of the death of their importer and take the pages in flux back, as they
  // are; those who imported from a home that is dead lose that.
  void come_to_terms(const Program& program) {
    for (uint32_t s = 0; s < program.shape.segments; ++s) {
      const uint32_t home = program.homes[s];
      if (home_is_dead(program, s)) {
        for (uint32_t n = 0; n < kNodes; ++n) {
          parts_[n].gone |= 1u << s;
          if (lives(n)) lose(n, parts_[n].views[s]);
        }
        continue;
      }
      Process& p = *nodes_[home];
      hear(p, CMI_EVENT_RCTXT_DOWN);
      const uint64_t view = parts_[home].views[s];
      const auto seg = std::find_if(attached_.begin(), attached_.end(), [&](const Attached& a) {
                         return a.node == home && a.segment == s;
                       })->seg;
      const size_t size = program.segment_bytes();
      const Recovery found = seg_check(p, seg, view, size);
      CHECK(found.answer.ok());
      if (consistent(shape_, s)) CHECK(found.size == 0);
      if (found.size != 0) CHECK(seg_reco(p, seg, view, size).ok());
      CHECK(seg_check(p, seg, view, size).size == 0);
      // A invalidation round that comes after all that the death had published.
      CHECK(store(p, view + size, ++knocks_).cause() == Fault::kNone);
    }
    for (uint32_t n = 0; n < kNodes; ++n) {
      if (lives(n)) barrier(program, n);
    }
    settled_ = now();
  }
  void hear(Process& p, int event) {
    const Deadline deadline = Deadline::in(kNewsDeadline * kSecond);
    if (!heard_.insert(&p).second) return;
    while (next_event(p) != event) {
      REQUIRE_MESSAGE(!deadline.passed(), p.name(), " is not told of the death");
      ::usleep(500);
    }
  }
  // What was cached of a dead home is loaded until its death is known, and then it is gone.
  void lose(uint32_t n, uint64_t at) {
    const Deadline deadline = Deadline::in(kNewsDeadline * kSecond);
    int cause = 0;
    do {
      cause = load(*nodes_[n], at).cause();
    } while (cause == Fault::kNone && !deadline.passed());
    CHECK_MESSAGE(cause == CMI_ERROR_SINVAL, name(n), " has cause ", cause);
  }
  // Says that something was lost if a home is dead; of that each thread is told once. The home that
  // owes the end of a invalidation round tells so at each of its own barriers.
  void barrier(const Program& program, uint32_t n) {
    let(n, [&](Process& p) {
      Answer done = mb(p);
      const bool lost = done.failed(CMI_ERR_STORE) || done.failed(CMI_ERR_HW);
      if (lost && unanswered() && is_victim(n)) return;
      if (lost && (unanswered() || dead()) && some_loss(program)) done = mb(p);
      CHECK_MESSAGE(done.ok(), "a barrier on ", name(n), ": ", done);
    });
  }
  void settle_and_read(const Program& program) {
    // Who reads after the victim may be the first to meet its death.
    const bool danger = in_danger();
    for (uint32_t n = 0; n < kNodes; ++n) barrier(program, n);
    // Once more, for the history, where nothing can come between.
    for (uint32_t n = 0; n < kNodes && !danger && !unanswered(); ++n) {
      let(n, [&](Process& p) { CHECK(checker::settle(p, parts_[n])); });
    }
    for (uint32_t n = 0; n < kNodes; ++n) {
      parts_[n].mortal = danger;
      let(n, [&](Process& p) { checker::read_all(p, parts_[n]); });
    }
  }

  void judge(const Program& program, Record& record) {
    const bool death = died_ && !replaced_;
    checker::History history = record.history(program);
    for (uint32_t t = 0; t < record.threads(); ++t) {
      CAPTURE(t);
      const ThreadRecord& thread = record.thread(t);
      CHECK_MESSAGE(thread.failure[0] == 0, std::string(thread.failure.data()));
      const uint32_t node = history.threads[t].process;
      if (death && is_victim(node)) continue;
      CHECK(thread.ended.load() == 1);
      for (uint32_t s = 0; s < program.shape.segments; ++s) {
        const int cause = thread.left[s].load();
        if (cause == 0) continue;
        CHECK_MESSAGE(may_leave(program, s, cause), "segment ", s, " was left for cause ", cause);
      }
      if (thread.error.load() != 0) CHECK(some_loss(program));
    }
    if (death) {
      checker::Death end{fault_->node, 0, settled_};
      for (const checker::Thread& thread : history.threads) {
        if (thread.process != fault_->node) continue;
        for (const checker::Event& e : thread.events) {
          end.lived = std::max({end.lived, e.begin, e.end});
        }
      }
      history.deaths.push_back(end);
    }
    // What was told as lost may have been anything: as if that home had been dead from the start.
    if (unanswered() && !replaced_) history.deaths.push_back({fault_->node, 0, 0});
    const checker::Verdict verdict = checker::check(history);
    CHECK_MESSAGE(verdict.legal(), checker::fault_name(verdict.fault), ": ", verdict.explanation);
    verdict_.accesses += verdict.accesses;
    verdict_.crossings += verdict.crossings;
    verdict_.unfinished += verdict.unfinished;
    verdict_.outlived += verdict.outlived;
  }

  void end_victim() {
    Process& p = *nodes_[fault_->node];
    const int status = p.end();
    died_ = died_by(status, SIGKILL) && !fault_->point.fails;
    CHECK_MESSAGE((died_ || status == 0), p.name(), " ended: ", describe_status(status));
    if (!died_) replaced_ = true;  // it has left for good
  }

  struct Attached {
    uint32_t node, segment;
    cmi_seg seg;
    uint64_t view;
  };

  Cluster cluster_;
  Shape shape_;
  const std::optional<Armed> fault_;
  std::array<Process*, kNodes> nodes_{};
  bool died_ = false;      // the victim was killed where it should be
  bool replaced_ = false;  // another process is on its node
  std::vector<checker::Part> parts_;
  std::vector<Attached> attached_;
  std::set<Process*> heard_;
  uint64_t knocks_ = 0;
  checker::Time settled_ = 0;
  checker::Verdict verdict_;
};

// Where the point is armed: at a node that passes it in `pilot`, early or late.
Armed choose(const Point& point, size_t number, const std::array<Passages, kNodes>& pilot) {
  Armed fault{point, static_cast<uint32_t>(number % kNodes), 1};
  const char* at = std::getenv("CMI_SWEEP_AT");
  if (at != nullptr && std::sscanf(at, "%u#%lu", &fault.node, &fault.passage) == 2 &&
      fault.node < kNodes) {
    return fault;
  }
  for (uint32_t i = 0; i < kNodes; ++i) {
    const uint32_t node = (static_cast<uint32_t>(number) + i) % kNodes;
    const auto found = pilot[node].find(std::string(point.name));
    if (found == pilot[node].end() || found->second == 0) continue;
    // Passages differ from play to play: not the last ones.
    const uint64_t among = std::max<uint64_t>(1, found->second / 2);
    return {point, node, 1 + number * 7919 % among};
  }
  return fault;
}

void sweep(int share) {
  const char* const only = std::getenv("CMI_SWEEP_POINT");
  const uint64_t seed = seed_from_environment();
  CAPTURE(seed);
  std::array<Passages, kNodes> pilot;
  {
    Scene scene(shape_from(seed), std::nullopt);
    scene.play();
    for (uint32_t n = 0; n < kNodes; ++n) pilot[n] = scene.passed(n);
    CHECK(scene.verdict().crossings > 0);
  }
  size_t played = 0, reached = 0;
  uint64_t unfinished = 0, outlived = 0;
  std::string missed;
  for (size_t i = static_cast<size_t>(share); i < std::size(kPoints); i += kShares) {
    const Point& point = kPoints[i];
    const std::string name(point.name);
    if (only != nullptr && name != only) continue;
    CAPTURE(name);
    Armed fault = choose(point, i + seed, pilot);
    bool here = false;
    // What this program does not come past as often as the one that counted, it may come past once.
    for (const uint64_t passage : {fault.passage, uint64_t{1}}) {
      fault.passage = passage;
      CAPTURE(fault.node);
      CAPTURE(fault.passage);
      Scene scene(shape_from(seed + 1000 * i), fault);
      scene.play();
      here = scene.reached();
      unfinished += scene.verdict().unfinished;
      outlived += scene.verdict().outlived;
      if (here || passage == 1) break;
    }
    ++played;
    reached += here;
    if (!here) missed += " " + name;
  }
  MESSAGE(reached, " of ", played, " fault points reached; ", unfinished,
          " stores and swaps under way at a death, ", outlived,
          " unpublished values of the dead met; not reached:", missed);
  if (only == nullptr) CHECK(reached >= kLeastReached);
}

TEST_SUITE("sweep") {
  TEST_CASE("random_programs_go_on_from_each_fault_point_first_part") { sweep(0); }
  TEST_CASE("random_programs_go_on_from_each_fault_point_second_part") { sweep(1); }
  TEST_CASE("random_programs_go_on_from_each_fault_point_third_part") { sweep(2); }
  TEST_CASE("random_programs_go_on_from_each_fault_point_fourth_part") { sweep(3); }
  TEST_CASE("random_programs_go_on_from_each_fault_point_fifth_part") { sweep(4); }
  TEST_CASE("random_programs_go_on_from_each_fault_point_sixth_part") { sweep(5); }
}

}  // namespace

}  // namespace cmi::test::random_sweep_test
