// Making random programs.
#include "checker/program.hpp"

#include <algorithm>
#include <array>
#include <random>

namespace cmi::checker {

namespace {

constexpr uint32_t kMaxValues = 255;  // of a cell: each has bytes of its own

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // From 0 to n - 1; the same everywhere, which the standard's distributions are not.
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(engine_() % n); }
  uint32_t from_to(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
  bool percent(uint32_t p) { return below(100) < p; }

 private:
  std::mt19937_64 engine_;
};

struct CellPlan {
  Cell cell;
  uint32_t page = 0;    // counted over all segments
  uint32_t writer = 0;  // the thread that stores, or kAny
  bool swapped = false;
  bool stored = false;
  uint32_t values = 0;  // given out
};
constexpr uint32_t kAny = ~0u;

// How often a phase does what, by OpKind.
using Weights = std::array<uint32_t, static_cast<size_t>(OpKind::kPause) + 1>;
//                               load spin store swap wmb mb rmb open flush close line pause
constexpr Weights kPhases[] = {{60, 12, 6, 1, 2, 1, 6, 1, 1, 1, 1, 2},
                               {22, 2, 44, 1, 10, 3, 1, 3, 4, 2, 5, 3},
                               {18, 6, 12, 40, 5, 3, 2, 1, 2, 1, 2, 4},
                               {30, 8, 24, 8, 8, 4, 3, 2, 3, 2, 4, 4},
                               {40, 4, 40, 0, 1, 0, 1, 1, 0, 1, 1, 1}};

class Maker {
 public:
  explicit Maker(const Shape& shape) : random_(shape.seed * 1000 + shape.round + 1) {
    program_.shape = shape;
  }

  Program make() {
    Shape& shape = program_.shape;
    Random of_seed(shape.seed);
    draw(&shape.nodes, of_seed, 2, 4);
    const uint32_t sharing = of_seed.percent(30) ? 2 : 1;
    if (shape.sharing == 0) shape.sharing = sharing;
    settle_in(of_seed);
    const bool one = random_.percent(15);
    draw(&shape.threads, random_, one ? 1 : 2, one ? 1 : 4);
    draw(&shape.segments, random_, 1, kMaxSegments);
    draw(&shape.ops, random_, 300, 3000);
    program_.pages = random_.from_to(1, 3);
    for (uint32_t s = 0; s < shape.segments; ++s) {
      program_.homes.push_back(random_.below(shape.nodes));
    }
    lay_out();
    for (uint32_t t = 0; t < shape.nodes * shape.threads; ++t) {
      program_.threads.push_back(thread(t));
    }
    return std::move(program_);
  }

 private:
  // Draws a number where none was given; it is drawn anyway, so that what follows stays the same.
  static void draw(uint32_t* number, Random& random, uint32_t low, uint32_t high) {
    const uint32_t drawn = random.from_to(low, high);
    if (*number == 0) *number = drawn;
  }

  void settle_in(Random& random) {
    const uint32_t nodes = program_.shape.nodes, one = random.below(nodes);
    for (uint32_t n = 0; n < nodes; ++n) program_.processes.push_back(n);
    for (uint32_t n = 0; n < nodes; ++n) {
      const bool two = random.percent(50) || n == one;
      if (two && program_.shape.sharing == 2) program_.processes.push_back(n);
    }
  }

  void lay_out() {
    const Shape& shape = program_.shape;
    for (uint32_t s = 0; s < shape.segments; ++s) {
      for (uint32_t p = 0; p < program_.pages; ++p) {
        const uint32_t page = s * kSegmentSpan + p * kPageBytes;
        uint32_t at = random_.below(2) * random_.below(kPageBytes / 2);
        for (uint32_t left = random_.from_to(6, 20); left > 0; --left) {
          const uint32_t width = 1u << random_.below(4);
          at = (at + width - 1) / width * width;
          if (at + width > kPageBytes) break;
          add({page + at, static_cast<uint8_t>(width), program_.homes[s]}, s * program_.pages + p);
          at += width;
          if (random_.percent(15)) at += random_.below(200);
        }
      }
    }
  }

  void add(Cell cell, uint32_t page) {
    CellPlan plan;
    plan.cell = cell;
    plan.page = page;
    plan.swapped = cell.width == 8 && random_.percent(50);
    plan.stored = !plan.swapped || random_.percent(40);
    const uint32_t writer = random_.below(program_.shape.nodes * program_.shape.threads);
    plan.writer = plan.swapped || random_.percent(25) ? kAny : writer;
    program_.cells.push_back(cell);
    plans_.push_back(plan);
  }

  std::vector<Op> thread(uint32_t me) {
    std::vector<Op> ops;
    bool open = false;
    while (ops.size() < program_.shape.ops) {
      const Weights& weights = kPhases[random_.below(std::size(kPhases))];
      uint32_t total = 0;
      for (const uint32_t w : weights) total += w;
      // The cells of the phase: those of all pages, or of one.
      near_.clear();
      const uint32_t pages = program_.shape.segments * program_.pages;
      const uint32_t page = random_.percent(40) ? kAny : random_.below(pages);
      for (uint32_t c = 0; c < plans_.size(); ++c) {
        if (page == kAny || plans_[c].page == page) near_.push_back(c);
      }
      for (uint32_t left = random_.from_to(8, 60); left > 0 && ops.size() < program_.shape.ops;
           --left) {
        uint32_t pick = random_.below(total), kind = 0;
        while (pick >= weights[kind]) pick -= weights[kind++];
        ops.push_back(make_op(static_cast<OpKind>(kind), me, &open));
      }
    }
    if (open) ops.push_back({OpKind::kClose, 0, 0, 0});
    return ops;
  }

  Op make_op(OpKind kind, uint32_t me, bool* open) {
    CellPlan& any = plans_[near_[random_.below(static_cast<uint32_t>(near_.size()))]];
    switch (kind) {
      case OpKind::kSpin:
        return {kind, any.cell.width, any.cell.at, random_.from_to(10, 2000)};
      case OpKind::kStore:
      case OpKind::kSwap:
        if (CellPlan* plan = writable(kind, me)) {
          return {kind, plan->cell.width, plan->cell.at, next_value(*plan)};
        }
        return load(any.cell);
      case OpKind::kOpen:
      case OpKind::kClose:
        kind = *open ? OpKind::kClose : OpKind::kOpen;
        *open = !*open;
        return {kind, 0, 0, 0};
      case OpKind::kFlush:
        return {*open ? kind : OpKind::kWmb, 0, 0, 0};
      case OpKind::kLineFlush:
        return {kind, 0, any.cell.at, 0};
      case OpKind::kPause:
        return {kind, 0, 0, random_.below(20000)};
      case OpKind::kLoad:
        return load(any.cell);
      default:
        return {kind, 0, 0, 0};
    }
  }

  // The cell itself, or what lies around its first byte in another width.
  Op load(Cell cell) {
    uint8_t width = cell.width;
    uint32_t at = cell.at;
    if (random_.percent(25)) {
      width = static_cast<uint8_t>(1u << random_.below(4));
      at = (cell.at + random_.below(cell.width)) / width * width;
    }
    return {OpKind::kLoad, width, at, 0};
  }

  CellPlan* writable(OpKind kind, uint32_t me) {
    std::vector<CellPlan*> found;
    for (const uint32_t c : near_) {
      CellPlan& plan = plans_[c];
      const bool fits = kind == OpKind::kSwap ? plan.swapped : plan.stored;
      const bool mine = plan.writer == kAny || plan.writer == me;
      if (fits && mine && plan.values < kMaxValues) found.push_back(&plan);
    }
    if (found.empty()) return nullptr;
    return found[random_.below(static_cast<uint32_t>(found.size()))];
  }

  // Multiplied by an odd number, each byte runs through all of 1 to 255; by another one in each
  // place, so that it tells its place too.
  static uint64_t next_value(CellPlan& plan) {
    const uint32_t number = ++plan.values;
    uint64_t value = 0;
    for (uint32_t k = 0; k < plan.cell.width; ++k) {
      value |= uint64_t{number * (2 * k + 1) & 0xff} << 8 * k;
    }
    return value;
  }

  Random random_;
  Program program_;
  std::vector<CellPlan> plans_;
  std::vector<uint32_t> near_;  // cells of the phase
};

}  // namespace

const char* op_name(OpKind kind) {
  static const char* const kNames[] = {"load",     "spin",     "store",  "atm_cas",
                                       "wmb",      "mb",       "rmb",    "open_fb",
                                       "flush_fb", "close_fb", "cflush", "pause"};
  return kNames[static_cast<size_t>(kind)];
}

uint32_t Program::process_of(uint32_t thread) const {
  const uint32_t node = thread / shape.threads;
  const auto second = std::find(processes.begin() + shape.nodes, processes.end(), node);
  if (thread % shape.threads % 2 == 0 || second == processes.end()) return node;
  return static_cast<uint32_t>(second - processes.begin());
}

Program make_program(const Shape& shape) { return Maker(shape).make(); }

}  // namespace cmi::checker
