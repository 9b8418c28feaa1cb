// Random programs on simulated nodes, judged by the checker of the memory model: what
// checker/random plays on processes, with interleavings that a seed chooses. A program that fails
// fails again: CMI_TEST_SEED is its seed, and CMI_TEST_PROGRAMS=1.
#include <cmi.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <unordered_map>
#include <vector>

#include "checker/check.hpp"
#include "checker/program.hpp"
#include "sim/nodes.hpp"
#include "support/long_run.hpp"

namespace cmi::test::random_test {

namespace {

using checker::Event;
using checker::Kind;
using checker::kSegmentSpan;
using checker::OpKind;

using Views = std::array<std::byte*, checker::kMaxSegments>;

// Plays a thread, and writes down what it did.
class Player {
 public:
  Player(Simulation& simulation, Node& node, const Views& views, std::vector<Event>& events)
      : simulation_(simulation), calls_(node), views_(views), events_(events) {}

  void play(const std::vector<checker::Op>& ops) {
    failed_ += calls_.open();
    for (const auto& op : ops) {
      simulation_.pass("operation");
      perform(op);
    }
  }
  uint64_t failed() const { return failed_; }

 private:
  std::byte* address(uint32_t at) const { return views_[at / kSegmentSpan] + at % kSegmentSpan; }

  uint64_t load(uint32_t at, uint8_t width) {
    Event e{Kind::kLoad, width, at, 0, 0, 0, now(), 0};
    const volatile std::byte* const from = address(at);
    switch (width) {
      case 1:
        e.value = *reinterpret_cast<const volatile uint8_t*>(from);
        break;
      case 2:
        e.value = *reinterpret_cast<const volatile uint16_t*>(from);
        break;
      case 4:
        e.value = *reinterpret_cast<const volatile uint32_t*>(from);
        break;
      default:
        seen_[at] = e.value = *reinterpret_cast<const volatile uint64_t*>(from);
    }
    e.end = now();
    events_.push_back(e);
    return e.value;
  }

  void store(const checker::Op& op) {
    const Nanos begin = now();
    volatile std::byte* const to = address(op.at);
    switch (op.width) {
      case 1:
        *reinterpret_cast<volatile uint8_t*>(to) = static_cast<uint8_t>(op.value);
        break;
      case 2:
        *reinterpret_cast<volatile uint16_t*>(to) = static_cast<uint16_t>(op.value);
        break;
      case 4:
        *reinterpret_cast<volatile uint32_t*>(to) = static_cast<uint32_t>(op.value);
        break;
      default:
        *reinterpret_cast<volatile uint64_t*>(to) = op.value;
    }
    events_.push_back({Kind::kStore, op.width, op.at, op.value, 0, 0, begin, now()});
  }

  void swap(const checker::Op& op) {
    uint64_t& seen = seen_[op.at];
    const uint64_t compare = seen;
    const Nanos begin = now();
    uint64_t found = 0;
    auto* const word = reinterpret_cast<volatile uint64_t*>(address(op.at));
    failed_ += calls_.cas(word, compare, op.value, &found);
    seen = found == compare ? op.value : found;
    events_.push_back({Kind::kSwap, 8, op.at, found, compare, op.value, begin, now()});
  }

  // The first and the last of the loads are kept.
  void spin(const checker::Op& op) {
    const uint64_t first = load(op.at, op.width);
    for (uint64_t i = 0; i < op.value; ++i) {
      simulation_.pass("spin");
      if (i != 0) events_.pop_back();
      if (load(op.at, op.width) != first) break;
    }
  }

  template <class Call>
  void barrier(Kind kind, uint32_t at, const Call& call) {
    Event e{kind, 0, at, 0, 0, 0, now(), 0};
    failed_ += call();
    e.end = now();
    events_.push_back(e);
  }

  void perform(const checker::Op& op) {
    switch (op.kind) {
      case OpKind::kLoad:
        load(op.at, op.width);
        break;
      case OpKind::kSpin:
        spin(op);
        break;
      case OpKind::kStore:
        store(op);
        break;
      case OpKind::kSwap:
        swap(op);
        break;
      case OpKind::kWmb:
        barrier(Kind::kBarrier, 0, [&] { return calls_.wmb(); });
        break;
      case OpKind::kMb:
        barrier(Kind::kBarrier, 0, [&] { return calls_.mb(); });
        break;
      case OpKind::kRmb:
        failed_ += calls_.rmb();
        break;
      case OpKind::kOpen:
        failed_ += calls_.open();
        break;
      case OpKind::kFlush:
      case OpKind::kClose:
        barrier(Kind::kBarrier, 0, [&] { return calls_.flush(); });
        break;
      case OpKind::kLineFlush:
        barrier(Kind::kLineFlush, op.at, [&] {
          return calls_.cflush(reinterpret_cast<volatile uint64_t*>(address(op.at)));
        });
        break;
      case OpKind::kPause:
        for (uint64_t i = 0; i < op.value % 16; ++i) simulation_.idle(kMicro);
        break;
    }
  }

  Simulation& simulation_;
  NodeCalls calls_;
  const Views& views_;
  std::vector<Event>& events_;
  std::unordered_map<uint32_t, uint64_t> seen_;  // words, by place: what a swap is tried with
  uint64_t failed_ = 0;
};

// The nodes of one program, and what it came to.
class Stage {
 public:
  Stage(uint64_t seed, const std::string& faults)
      : program_(checker::make_program({seed, 0, 0, 0, 0, 0, 1})),
        simulation_(static_cast<uint32_t>(seed * 2654435761u >> 3)) {
    ::setenv("CMI_FAULT_POINT", faults.c_str(), 1);
    simulation_.arm_faults(-1);
    for (uint32_t n = 0; n < program_.shape.nodes; ++n) {
      nodes_.push_back(std::make_unique<Node>(simulation_, *net_, folder_, static_cast<int>(n)));
    }
    views_.resize(nodes_.size());
  }
  ~Stage() {
    if (simulation_.sound()) {
      simulation_.stop();
    } else {
      for (auto& node : nodes_) (void)node.release();
    }
    ::unsetenv("CMI_FAULT_POINT");
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  checker::Verdict play() {
    simulation_.spawn(-1, [&] { share(); });
    simulation_.run();
    const size_t played = program_.threads.size();
    history_.cells = program_.cells;
    history_.threads.resize(played + nodes_.size());
    for (uint32_t t = 0; t < played; ++t) spawn(t, program_.process_of(t), program_.threads[t]);
    simulation_.run();
    // All settle, and then each of them looks at all.
    spawn_all([](uint32_t) { return std::vector<checker::Op>{{OpKind::kMb, 0, 0, 0}}; });
    spawn_all([&](uint32_t) {
      std::vector<checker::Op> loads;
      for (const auto& c : program_.cells) loads.push_back({OpKind::kLoad, c.width, c.at, 0});
      return loads;
    });
    REQUIRE(failed_ == 0);
    return checker::check(history_);
  }

 private:
  void share() {
    for (uint32_t s = 0; s < program_.shape.segments; ++s) {
      const uint32_t home = program_.homes[s];
      const bool consistent = (program_.shape.seed / 2 + s) % 2 == 0;
      const Exported e = nodes_[home]->export_segment(program_.segment_bytes(),
                                                      consistent ? CMI_SEG_CLIENT_CONSIST : 0);
      for (size_t n = 0; n < nodes_.size(); ++n) {
        views_[n][s] = n == home ? e.at : nodes_[n]->import_segment(e);
      }
    }
  }

  void spawn(uint32_t thread, uint32_t node, std::vector<checker::Op> ops) {
    history_.threads[thread].process = history_.threads[thread].node = node;
    simulation_.spawn(static_cast<int>(node), [this, thread, node, ops = std::move(ops)] {
      nodes_[node]->enable();
      Player player(simulation_, *nodes_[node], views_[node], history_.threads[thread].events);
      player.play(ops);
      failed_ += player.failed();
      nodes_[node]->disable();
    });
  }
  template <class Ops>
  void spawn_all(const Ops& ops) {
    for (uint32_t n = 0; n < nodes_.size(); ++n) {
      spawn(static_cast<uint32_t>(program_.threads.size()) + n, n, ops(n));
    }
    simulation_.run();
  }

  const checker::Program program_;
  NodeFolder folder_;
  Simulation simulation_;
  std::shared_ptr<fabric::FakeNet> net_ = make_net();
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Views> views_;
  checker::History history_;
  uint64_t failed_ = 0;
};

// Plays programs until one is illegal, from a seed on; the number of those that were legal.
uint64_t play_programs(uint64_t usual_seed, uint64_t programs, const std::string& faults,
                       checker::Verdict* last) {
  const uint64_t first = number_from("CMI_TEST_SEED", usual_seed);
  uint64_t crossings = 0, swapped = 0;
  for (uint64_t i = 0; i < programs; ++i) {
    CAPTURE(first + i);
    *last = Stage(first + i, faults).play();
    if (!last->legal()) return i;
    crossings += last->crossings;
    swapped += last->swapped;
  }
  // Else little was asked.
  CHECK(crossings >= programs * 2);
  CHECK((programs < 8 || swapped > 0));
  return programs;
}

// Some delays put far apart what is mostly close together.
constexpr const char* kDelays =
    "invalidate_before_zap=delay:300;update_before_apply=delay:200;publish_before_page=delay:50";

void check_legal(const std::string& faults) {
  const uint64_t programs = number_from("CMI_TEST_PROGRAMS", long_run() ? 1000 : 8);
  checker::Verdict verdict;
  const uint64_t legal = play_programs(1, programs, faults, &verdict);
  CHECK_MESSAGE(legal == programs, "after ", legal,
                " programs: ", checker::fault_name(verdict.fault), ": ", verdict.explanation);
}

// From the first seed on that shows it, which is another one after a change of the library.
void check_caught(const std::string& mutation, uint64_t seed) {
  checker::Verdict verdict;
  const uint64_t legal = play_programs(seed, 400, mutation + "=fail", &verdict);
  CHECK_MESSAGE(legal < 400, mutation, " is not caught");
  CHECK(verdict.fault != checker::Fault::kMalformed);
}

TEST_SUITE("random") {
  TEST_CASE("random_programs_on_simulated_nodes_are_legal") { check_legal(""); }
  TEST_CASE("random_programs_with_delays_are_legal") { check_legal(kDelays); }
  TEST_CASE("random_programs_that_store_in_order_are_legal") {
    check_legal("always_in_order=fail;write_behind_soon=fail");
  }
  TEST_CASE("an_invalidated_page_that_is_kept_is_caught") {
    check_caught("mutate_keep_on_invalidate", 1);
  }
  TEST_CASE("a_publication_that_nobody_hears_of_is_caught") {
    check_caught("mutate_publish_nobody", 1);
  }
  TEST_CASE("a_stale_page_that_is_taken_for_fresh_is_caught") {
    check_caught("mutate_stale_ignored", 1);
  }
  TEST_CASE("an_update_of_any_generation_is_caught") {
    check_caught("mutate_update_any_generation", 15);
  }
}

}  // namespace

}  // namespace cmi::test::random_test
