// Running litmus programs: the shared page that keeps threads together, where variables lie, and
// the steps.
#include "litmus/lab.hpp"

#include <cmi/ofi/cmi_impl.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "core/base/clock.hpp"
#include "support/long_run.hpp"

namespace cmi::test {

namespace {

constexpr uint32_t kMaxRounds = 8192;  // of a Lab
constexpr uint32_t kPart = 64;         // rounds between two looks at the outcomes
constexpr uint32_t kGroup = 100;  // rounds whose variables lie in the same kSpread sets of pages
constexpr uint32_t kSpread = 4;
constexpr uint32_t kPages = 2 * (kMaxRounds / kGroup + 1) * kSpread * kVariables;
constexpr uint32_t kSpareWord = kGroup * kVariables;  // from here on: a word of each thread
static_assert((kSpareWord + kMaxThreads) * sizeof(uint64_t) <= kPage);
constexpr Nanos kPatience = 20 * kSecond, kAwaitFor = 40 * kMilli, kWatchFor = kMilli;
constexpr uint8_t kUnset = 254;

using Path = std::array<char, 128>;

}  // namespace

// In memory that the test program and all children map.
struct Control {
  std::atomic<uint32_t> arrived, phase;
  std::atomic<bool> over;  // somebody waited in vain: all go home
  std::atomic<uint8_t> posts[kMaxRounds];
  std::atomic<uint8_t> outcomes[kMaxRounds][kRegisters + kVariables];
};

namespace {

Control* map_control(const Path& path) {
  const Fd file(::open(path.data(), O_RDWR | O_CLOEXEC));
  void* at = ::mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  return at == MAP_FAILED ? nullptr : static_cast<Control*>(at);
}

// ---- In the child ---------------------------------------------------------------------------

Control* g_control = nullptr;

// False when it never came to be.
template <class Condition>
bool wait_until(Condition condition) {
  const Deadline deadline = Deadline::in(kPatience);
  while (!condition() && !g_control->over.load()) {
    if (deadline.passed()) g_control->over.store(true);
    ::sched_yield();
  }
  return !g_control->over.load();
}

}  // namespace

bool meet_all(uint32_t threads) {
  Control& c = *g_control;
  const uint32_t phase = c.phase.load();
  if (c.arrived.fetch_add(1) + 1 == threads) {
    c.arrived.store(0);
    c.phase.fetch_add(1);
    return !c.over.load();
  }
  return wait_until([&] { return c.phase.load() != phase; });
}

namespace {

void pause_for(Nanos span) {
  const Deadline deadline = Deadline::in(span);
  while (!deadline.passed()) ::sched_yield();
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

using Bases = std::array<uint64_t, 2>;

class Runner {
 public:
  Runner(const Program& program, uint32_t me, const Bases& bases)
      : program_(program), me_(me), bases_(bases) {}

  // The number of calls that failed.
  uint64_t run(uint32_t first, uint32_t count) {
    epoch_ = CMIFN(ctxt(), 10, open_fb)(ctxt());
    for (uint32_t i = 0; i < count && !over_; ++i) one_round(first + i);
    failed_ += CMIFN(ctxt(), 10, close_fb)(ctxt(), epoch_) != 0;
    return failed_ + (over_ ? 1 : 0);
  }
  // The same in a thread that the library does not know yet.
  uint64_t run_in_new_thread(uint32_t first, uint32_t count) {
    failed_ += CMIFN(ctxt(), 10, ini_th)(ctxt()) != 0;
    failed_ += CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1) != 0;
    run(first, count);
    failed_ += CMIFN(ctxt(), 10, fini)(ctxt()) != 0;
    return failed_ + (over_ ? 1 : 0);
  }

 private:
  void one_round(uint32_t round) {
    round_ = round;
    random_.seed(round * kMaxThreads + me_);
    if (program_.again) {
      failed_ += cmi_mb() != 0;  // so that what the last thread caches is what there is
      gather();
      if (me_ + 1u == program_.count) {
        for (uint32_t v = 0; v < kVariables; ++v) *word(v) = 0;
        failed_ += cmi_mb() != 0;
      }
      gather();
    }
    if (!program_.calm) stir();
    gather();
    const Thread& thread = program_.threads[me_];
    for (uint32_t i = 0; i < thread.count && !over_; ++i) {
      if (!program_.calm && random_() % 2 == 0) pause_for(random_() % (64 * kMicro));
      step(thread.steps[i]);
    }
    if (!program_.finals) return;
    gather();
    failed_ += cmi_mb() != 0;
    gather();
    for (uint32_t v = 0; v < kVariables; ++v) {
      const auto value = static_cast<uint8_t>(*word(v));
      auto& cell = g_control->outcomes[round_][kRegisters + v];
      uint8_t unset = kUnset;
      if (!cell.compare_exchange_strong(unset, value) && unset != value) cell = kDisagree;
    }
    gather();
  }

  // Some pages are cached, and some of them dirty, when the round begins.
  void stir() {
    for (uint32_t v = 0; v < kVariables; ++v) {
      const uint32_t what = static_cast<uint32_t>(random_()) % 4;
      if (what < 2) (void)*word(v);
      if (what == 0) {
        *reinterpret_cast<volatile uint64_t*>(base(v) + place_of(program_, round_, v).page +
                                              (kSpareWord + me_) * 8) = round_;
      }
    }
  }

  void gather() { over_ = over_ || !meet_all(program_.count); }
  uint64_t base(uint32_t variable) const { return bases_[variable % 2]; }
  volatile uint64_t* word(uint32_t v) const {
    return reinterpret_cast<volatile uint64_t*>(base(v) + place_of(program_, round_, v).word);
  }
  void record(uint8_t reg, uint64_t value) {
    if (reg < kRegisters) g_control->outcomes[round_][reg] = static_cast<uint8_t>(value);
  }

  void step(const Step& s) {
    volatile uint64_t* const at = word(s.variable);
    switch (s.act) {
      case Act::kNothing:
        break;
      case Act::kStore:
        *at = s.value;
        break;
      case Act::kLoad:
        record(s.reg, *at);
        break;
      case Act::kAwait: {
        uint64_t seen = *at;
        for (const Deadline end = Deadline::in(kAwaitFor); seen != s.value && !end.passed();) {
          ::sched_yield();
          seen = *at;
        }
        record(s.reg, seen);
        break;
      }
      case Act::kCas: {
        uint64_t old = 0;
        failed_ += CMIFN(ctxt(), 10, atm_cas)(ctxt(), const_cast<uint64_t*>(at), s.expected,
                                              s.value, &old) != 0;
        record(s.reg, old);
        break;
      }
      case Act::kWmb:
        failed_ += cmi_wmb() != 0;
        break;
      case Act::kMb:
        failed_ += cmi_mb() != 0;
        break;
      case Act::kRmb:
        failed_ += cmi_rmb() != 0;
        break;
      case Act::kFlush:
        failed_ += CMIFN(ctxt(), 10, flush_fb)(ctxt(), epoch_) != 0;
        break;
      case Act::kClose:
        failed_ += CMIFN(ctxt(), 10, close_fb)(ctxt(), epoch_) != 0;
        epoch_ = CMIFN(ctxt(), 10, open_fb)(ctxt());
        break;
      case Act::kCflush: {
        void* lines[] = {const_cast<uint64_t*>(at)};
        failed_ += CMIFN(ctxt(), 10, cflush)(ctxt(), lines, 1) != 0;
        break;
      }
      case Act::kWatch: {
        uint64_t least = s.value;
        for (const Deadline end = Deadline::in(kWatchFor); !end.passed();) {
          const uint64_t seen = *at;
          if (seen < least) record(s.reg, 1);
          least = seen;
        }
        break;
      }
      case Act::kChurn: {
        // Each value for as long as the clock takes: two stores in a row may become one before
        // anybody sees the first.
        for (const Deadline end = Deadline::in(kWatchFor); !end.passed();) {
          *at = s.value + 1;
          (void)end.passed();
          *at = s.value;
        }
        break;
      }
      case Act::kPause:
        pause_for(random_() % kMilli);
        break;
      case Act::kPost:
        g_control->posts[round_].fetch_add(1);
        break;
      case Act::kWait:
        over_ = over_ || !wait_until([&] { return g_control->posts[round_].load() >= s.value; });
        break;
    }
  }

  const Program& program_;
  const uint32_t me_;
  const Bases bases_;
  cmi_fb epoch_ = nullptr;
  std::minstd_rand random_;
  uint32_t round_ = 0;
  uint64_t failed_ = 0;
  bool over_ = false;
};

uint64_t run_threads(Program program, uint8_t me, Bases bases, uint32_t first, uint32_t count) {
  std::array<uint64_t, kMaxThreads> failed{};
  std::vector<uint32_t> mine;
  for (uint32_t t = 0; t < program.count; ++t) {
    if (program.threads[t].process == me) mine.push_back(t);
  }
  // Who has one thread has no other: a barrier then takes another way.
  if (mine.size() == 1) return Runner(program, mine[0], bases).run(first, count);
  std::vector<std::thread> threads;
  for (uint32_t t : mine) {
    threads.emplace_back(
        [&, t] { failed[t] = Runner(program, t, bases).run_in_new_thread(first, count); });
  }
  for (auto& thread : threads) thread.join();
  uint64_t all = 0;
  for (uint64_t f : failed) all += f;
  return all;
}

}  // namespace

// ---- In the test ----------------------------------------------------------------------------

Thread::Thread(int on, std::initializer_list<Step> all) : process(static_cast<uint8_t>(on)) {
  for (const Step& s : all) steps[count++] = s;
}

Program program(std::initializer_list<Thread> threads) {
  Program p;
  for (const Thread& t : threads) p.threads[p.count++] = t;
  return p;
}

uint64_t Histogram::count(const Predicate& matches) const {
  uint64_t n = 0;
  for (auto& [outcome, times] : counts_) n += matches(outcome) ? times : 0;
  return n;
}

uint64_t Histogram::rounds() const {
  return count([](const Outcome&) { return true; });
}

std::ostream& operator<<(std::ostream& out, const Histogram& histogram) {
  for (auto& [outcome, times] : histogram.counts_) {
    out << "\n  ";
    for (size_t i = 0; i < outcome.size(); ++i) {
      if (i == kRegisters) out << "| ";
      out << static_cast<int>(outcome[i]) << ' ';
    }
    out << ": " << times;
  }
  return out;
}

bool runs_again() {
  return std::getenv("CMI_TEST_KERNEL") != nullptr || std::getenv("CMI_TEST_FAULT") != nullptr;
}

bool plays_all() { return long_run() && !runs_again(); }

uint32_t share_of(uint32_t rounds) { return plays_all() ? rounds : rounds / 4; }

Lab::Lab(const Placement& where, const std::string& faults, int at) {
  const auto& homes = where.homes;
  const auto is_home = [&](int i) {
    return std::find(homes.begin(), homes.end(), i) != homes.end();
  };
  processes_.resize(static_cast<size_t>(where.processes));
  std::vector<Pending<Answer>> starting;
  for (const bool home : {true, false}) {  // what starts first ends last
    for (int i = 0; i < where.processes; ++i) {
      if (is_home(i) != home) continue;
      Env env;
      if (!faults.empty() && (at == -1 || at == i)) env.emplace_back("CMI_FAULT_POINT", faults);
      const int node = i == where.beside ? homes[0] : i == where.sharing ? 0 : i;
      Process& p = cluster_.spawn_bare("node" + std::to_string(node), env);
      processes_[static_cast<size_t>(i)] = &p;
      starting.push_back(p.start([] { return start_context(CMI_VERNO); }));
    }
  }
  for (auto& pending : starting) REQUIRE(pending.get().ok());
  bases_.resize(processes_.size());
  for (size_t s = 0; s < homes.size(); ++s) {
    const Export e = export_segment(process(homes[s]), kPages * kPage);
    cmi_seg of_the_first = 0;  // the import of process 0
    for (int i = 0; i < where.processes; ++i) {
      uint64_t& base = bases_[static_cast<size_t>(i)][s];
      if (i == homes[s]) {
        base = e.at;
      } else if (i == where.beside && s == 0) {
        const Answer view = seg_at(process(i), e.seg);
        REQUIRE(view.ok());
        base = view.at();
      } else if (i == where.sharing) {
        const Answer view = seg_at(process(i), of_the_first);
        REQUIRE(view.ok());
        REQUIRE(cmi_enb(process(i), 1).ok());
        base = view.at();
      } else {
        const Import import = import_segment(process(i), e);
        if (i == 0) of_the_first = import.seg;
        base = import.at;
      }
    }
  }
  if (homes.size() == 1) {
    for (auto& base : bases_) base[1] = base[0];
  }

  const std::string file = cluster_.scratch() + "/control";
  Path path{};
  file.copy(path.data(), path.size() - 1);
  const Fd made(::open(path.data(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::ftruncate(made.get(), sizeof(Control)) == 0);
  control_ = map_control(path);
  REQUIRE(control_ != nullptr);
  for (Process* p : processes_) {
    REQUIRE(p->run(
        [](Path name) {
          g_control = map_control(name);
          return g_control != nullptr;
        },
        path));
  }
}

Lab::~Lab() { ::munmap(control_, sizeof(Control)); }

Histogram Lab::run(const Program& program, uint32_t rounds, const Predicate& enough) {
  Histogram histogram;
  for (uint32_t left = rounds; left > 0;) {
    const uint32_t n = std::min(left, kPart);
    const uint32_t first = next_round_;
    REQUIRE(first + n <= kMaxRounds);
    next_round_ += n;
    left -= n;
    for (uint32_t round = first; round < first + n; ++round) {
      for (size_t i = 0; i < kRegisters + kVariables; ++i) {
        control_->outcomes[round][i] = i < kRegisters || !program.finals ? 0 : kUnset;
      }
    }
    std::vector<Pending<uint64_t>> running;
    for (uint8_t i = 0; i < processes_.size(); ++i) {
      const bool takes_part =
          std::any_of(program.threads.begin(), program.threads.begin() + program.count,
                      [&](const Thread& t) { return t.process == i; });
      if (!takes_part) continue;
      running.push_back(
          process(i).start([](Program p, uint8_t me, Bases bases, uint32_t from,
                              uint32_t count) { return run_threads(p, me, bases, from, count); },
                           program, i, bases_[i], first, n));
    }
    for (auto& pending : running) REQUIRE(pending.get(60) == 0);
    bool seen = false;
    for (uint32_t round = first; round < first + n; ++round) {
      Outcome outcome;
      for (size_t i = 0; i < outcome.size(); ++i) outcome[i] = control_->outcomes[round][i];
      histogram.add(outcome);
      seen = seen || (enough && enough(outcome));
    }
    if (seen) break;
  }
  return histogram;
}

}  // namespace cmi::test
