// The shared page that keeps threads together, where variables lie, and the steps.
#include "litmus/play.hpp"

#include <random>
#include <utility>

#include "core/base/schedule.hpp"

namespace cmi::test {

namespace {

constexpr uint64_t kPage = 4096;
constexpr uint32_t kGroup = 100;  // rounds whose variables lie in the same kSpread sets of pages
constexpr uint32_t kSpread = 4;
constexpr uint32_t kPages = 2 * (kMaxRounds / kGroup + 1) * kSpread * kVariables;
constexpr uint32_t kSpareWord = kGroup * kVariables;  // from here on: a word of each thread
static_assert((kSpareWord + kMaxThreads) * sizeof(uint64_t) <= kPage);
constexpr Nanos kPatience = 20 * kSecond, kAwaitFor = 40 * kMilli, kWatchFor = kMilli,
                kLingerFor = 5 * kMilli;
constexpr uint8_t kUnset = 254;
constexpr uint32_t kLeftToTimer = 4;  // in one of so many rounds no barrier follows the last step

// False when it never came to be.
template <class Condition>
bool wait_until(Control& control, Condition condition) {
  const Deadline deadline = Deadline::in(kPatience);
  while (!condition() && !control.over.load()) {
    if (deadline.passed()) control.over.store(true);
    yield_processor();
  }
  return !control.over.load();
}

// Between two accesses: others may go first where a seed chooses who does.
void between_accesses() {
  if (Schedule* s = schedule(); s != nullptr) s->pass("access");
}

void pause_for(Nanos span) {
  const Deadline deadline = Deadline::in(span);
  while (!deadline.passed()) yield_processor();
}

struct Place {
  uint64_t page;  // offset in the segment
  uint64_t word;
};

Place place_of(const Program& program, uint32_t round, uint32_t variable) {
  if (program.again) round = 0;
  const uint32_t set = round / kGroup * kSpread + (round * 2654435761u >> 16) % kSpread;
  // Not side by side: neighbours would be dropped in one step.
  const uint32_t page = 2 * (set * kVariables + (program.one_page ? 0 : variable));
  return {page * kPage, page * kPage + (round % kGroup * kVariables + variable) * 8};
}

class Runner {
 public:
  Runner(const Program& program, uint32_t me, const Bases& bases, Control& control, Calls& calls)
      : program_(program), me_(me), bases_(bases), control_(control), calls_(calls) {}

  uint64_t run(uint32_t first, uint32_t count) {
    failed_ += calls_.open();
    for (uint32_t i = 0; i < count && !over_; ++i) one_round(first + i);
    failed_ += calls_.close();
    return failed_ + (over_ ? 1 : 0);
  }

 private:
  void one_round(uint32_t round) {
    round_ = round;
    random_.seed(round * kMaxThreads + me_);
    locals_.fill(0);
    if (program_.again || program_.initial != decltype(program_.initial){}) set_variables();
    if (!program_.calm) stir();
    gather();
    const Thread& thread = program_.threads[me_];
    for (uint32_t i = 0; i < thread.count && !over_ && !lost(); ++i) {
      if (!program_.calm && random_() % 2 == 0) pause_for(random_() % (64 * kMicro));
      between_accesses();
      step(thread.steps[i]);
      i += std::exchange(skipped_, 0);
    }
    if (program_.as_told) end_steps();
    if (program_.finals) load_finals();
  }

  // By the last thread.
  void set_variables() {
    failed_ += calls_.mb();  // so that what the last thread caches is what there is
    gather();
    if (me_ + 1u == program_.count) {
      for (uint32_t v = 0; v < program_.variables; ++v) *word(v) = program_.initial[v];
      failed_ += calls_.mb();
    }
    gather();
  }

  void load_finals() {
    gather();
    if (lost()) return;  // for all threads or none: all have done their steps
    failed_ += calls_.mb();
    gather();
    for (uint32_t v = 0; v < program_.variables; ++v) {
      const auto value = static_cast<uint8_t>(*word(v));
      auto& cell = control_.outcomes[round_][kRegisters + v];
      uint8_t unset = kUnset;
      if (!cell.compare_exchange_strong(unset, value) && unset != value) cell = kDisagree;
    }
    gather();
  }

  // Some pages are cached, and some of them dirty, when the round begins.
  void stir() {
    for (uint32_t v = 0; v < program_.variables; ++v) {
      const uint32_t what = static_cast<uint32_t>(random_()) % 4;
      if (what < 2) (void)*word(v);
      if (what == 0) {
        *reinterpret_cast<volatile uint64_t*>(base(v) + place_of(program_, round_, v).page +
                                              (kSpareWord + me_) * 8) = round_;
      }
    }
  }

  void gather() { over_ = over_ || !meet_all(control_, program_.count); }
  uint64_t base(uint32_t variable) const { return bases_.of(variable); }
  volatile uint64_t* word(uint32_t v) const {
    return reinterpret_cast<volatile uint64_t*>(base(v) + place_of(program_, round_, v).word);
  }
  void record(uint8_t reg, uint64_t value) {
    if (reg < kRegisters) control_.outcomes[round_][reg] = static_cast<uint8_t>(value);
  }

  // Others may await what no barrier of the program publishes.
  void end_steps() {
    if (!lost() && round_ % kLeftToTimer != 0) failed_ += calls_.wmb();
    prospect().end(me_);
  }

  Prospect& prospect() const { return control_.prospects[round_]; }
  bool lost() const { return program_.as_told && prospect().lost(); }
  void saw(uint64_t value, uint64_t told) {
    if (program_.as_told && value != told) prospect().see_other();
  }
  bool in_vain() const {
    return program_.as_told && (prospect().lost() || prospect().stuck(program_.count));
  }

  void await(const Step& s) {
    volatile uint64_t* const at = word(s.variable);
    if (program_.as_told) prospect().await(me_, s.variable, s.value);
    uint64_t seen = *at;
    for (const Deadline end = Deadline::in(kAwaitFor);
         seen != s.value && !end.passed() && !in_vain();) {
      yield_processor();
      seen = *at;
    }
    if (program_.as_told) prospect().go_on(me_);
    saw(seen, s.value);
    record(s.reg, seen);
  }

  void step(const Step& s) {
    if (compute(s)) return;
    if (has_locals(s)) return access(s);
    volatile uint64_t* const at = word(s.variable);
    switch (s.act) {
      case Act::kNothing:
        break;
      case Act::kStore:
        if (program_.as_told) prospect().begin_store(s.variable, s.value);
        *at = s.value;
        break;
      case Act::kLoad: {
        const uint64_t seen = *at;
        saw(seen, s.value);
        record(s.reg, seen);
        break;
      }
      case Act::kAwait:
        await(s);
        break;
      case Act::kCas: {
        uint64_t old = 0;
        if (program_.as_told) prospect().begin_store(s.variable, s.value);
        failed_ += calls_.cas(at, s.expected, s.value, &old);
        saw(old, s.expected);
        record(s.reg, old);
        break;
      }
      case Act::kWmb:
        failed_ += calls_.wmb();
        break;
      case Act::kMb:
        failed_ += calls_.mb();
        break;
      case Act::kRmb:
        failed_ += calls_.rmb();
        break;
      case Act::kFlush:
        failed_ += calls_.flush();
        break;
      case Act::kClose:
        failed_ += calls_.close() + calls_.open();
        break;
      case Act::kCflush:
        failed_ += calls_.cflush(at);
        break;
      case Act::kWatch: {
        uint64_t least = s.value;
        for (const Deadline end = Deadline::in(kWatchFor); !end.passed();) {
          const uint64_t seen = *at;
          if (seen < least) record(s.reg, 1);
          least = seen;
          between_accesses();
        }
        break;
      }
      case Act::kChurn: {
        // Each value for as long as the clock takes: two stores in a row may become one before
        // anybody sees the first.
        for (const Deadline end = Deadline::in(kWatchFor); !end.passed();) {
          *at = s.value + 1;
          (void)end.passed();
          between_accesses();
          *at = s.value;
          between_accesses();
        }
        break;
      }
      case Act::kPause:
        pause_for(random_() % kMilli);
        break;
      case Act::kPost:
        control_.posts[round_].fetch_add(1);
        break;
      case Act::kWait:
        over_ = over_ ||
                !wait_until(control_, [&] { return control_.posts[round_].load() >= s.value; });
        break;
      default:
        break;
    }
  }

  // ---- Steps with locals ----------------------------------------------------------------------

  uint64_t local_or(uint8_t local, uint8_t number) const {
    return local < kLocals ? locals_[local] : number;
  }
  void give(const Step& s, uint64_t result) {
    if (s.to < kLocals) locals_[s.to] = result;
    record(s.reg, result);
  }

  // Of steps that access no variable. False: it is another one.
  bool compute(const Step& s) {
    switch (s.act) {
      case Act::kCompute:
        give(s, result_of(s.op, local_or(s.first, s.expected), local_or(s.second, s.value)));
        return true;
      case Act::kSkip:
        if (local_or(s.first, s.expected) == 0) skipped_ = s.value;
        return true;
      case Act::kTell:
        record(s.reg, local_or(s.first, s.expected));
        return true;
      default:
        return false;
    }
  }

  // Of steps whose operands or results are locals, and of those that only such programs have.
  void access(const Step& s) {
    const std::optional<uint8_t> variable = variable_of(s, locals_);
    if (!variable) return give(s, 0);
    volatile uint64_t* const at = word(*variable);
    const uint64_t number = local_or(s.second, s.value);
    switch (s.act) {
      case Act::kStore:
        *at = number;
        break;
      case Act::kLoad:
        give(s, *at);
        break;
      case Act::kLinger:
        linger(s, at);
        break;
      case Act::kCas: {
        uint64_t old = 0;
        failed_ += calls_.cas(at, local_or(s.first, s.expected), number, &old);
        give(s, old);
        break;
      }
      case Act::kTake:
        take(at, s.expected, s.value);
        break;
      case Act::kUpdate:
        update(s, at, number);
        break;
      default:
        break;
    }
  }

  void linger(const Step& s, volatile uint64_t* at) {
    uint64_t seen = *at;
    if (random_() % 2 == 0) {
      for (const Deadline end = Deadline::in(kLingerFor); seen != s.value && !end.passed();) {
        yield_processor();
        seen = *at;
      }
    }
    give(s, seen);
  }

  void take(volatile uint64_t* at, uint64_t expected, uint64_t desired) {
    over_ = over_ || !wait_until(control_, [&] {
              uint64_t old = 0;
              failed_ += calls_.cas(at, expected, desired, &old);
              return old == expected;
            });
  }

  // A loop of swaps. It begins with what is there: a swap of 0 for 0 tells.
  void update(const Step& s, volatile uint64_t* at, uint64_t number) {
    uint64_t old = 0;
    failed_ += calls_.cas(at, 0, result_on(s, 0, number), &old);
    for (uint64_t expected = 0; old != expected && !over_;) {
      if (s.op == Op::kPlusUnless && old == s.expected) break;
      expected = old;
      failed_ += calls_.cas(at, expected, result_on(s, expected, number), &old);
      over_ = over_ || control_.over.load();
    }
    give(s, old);
  }
  // What an update puts in place of `old`.
  static uint64_t result_on(const Step& s, uint64_t old, uint64_t number) {
    if (s.op == Op::kPlusUnless && old == s.expected) return old;
    return result_of(s.op, old, number);
  }

  const Program& program_;
  const uint32_t me_;
  const Bases bases_;
  Control& control_;
  Calls& calls_;
  std::minstd_rand random_;
  uint32_t round_ = 0;
  Locals locals_{};
  uint32_t skipped_ = 0;  // steps, by the one before them
  uint64_t failed_ = 0;
  bool over_ = false;
};

}  // namespace

const size_t kLabBytes = kPages * kPage;

uint32_t Prospect::bit(uint32_t variable, uint32_t value) {
  constexpr uint32_t kFirst = 1, kValues = 4;  // behind kEnded
  static_assert(kFirst + kVariables * kValues <= 32);
  return uint32_t{1} << (kFirst + variable * kValues + value % kValues);
}

bool Prospect::stuck(uint32_t threads) const {
  uint32_t awaited = 0;
  for (uint32_t t = 0; t < threads; ++t) {
    const uint32_t what = awaited_[t].load();
    if (what == kRuns) return false;
    awaited |= what;
  }
  return (awaited & begun_.load()) == 0;
}

void Control::clear(const Program& program, uint32_t round) {
  for (size_t i = 0; i < kRegisters + kVariables; ++i) {
    const bool unset = program.finals && i >= kRegisters && i - kRegisters < program.variables;
    outcomes[round][i] = unset ? kUnset : 0;
  }
}

Outcome Control::outcome(uint32_t round) const {
  Outcome found;
  for (size_t i = 0; i < found.size(); ++i) found[i] = outcomes[round][i];
  return found;
}

bool meet_all(Control& c, uint32_t threads) {
  const uint32_t phase = c.phase.load();
  if (c.arrived.fetch_add(1) + 1 == threads) {
    c.arrived.store(0);
    c.phase.fetch_add(1);
    return !c.over.load();
  }
  return wait_until(c, [&] { return c.phase.load() != phase; });
}

uint64_t play(const Program& program, uint32_t me, const Bases& bases, uint32_t first,
              uint32_t count, Control& control, Calls& calls) {
  return Runner(program, me, bases, control, calls).run(first, count);
}

}  // namespace cmi::test
