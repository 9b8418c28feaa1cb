#include "litmus/outcomes.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace cmi::test {

namespace {

constexpr size_t kMostTraces = 4096, kMostValues = 24, kMostExecutions = 500'000;

using Registers = std::array<uint8_t, kRegisters>;
using Values = std::array<std::set<uint64_t>, kVariables>;

// What a thread does that others may notice; a fence publishes what the thread has stored.
struct Event {
  bool reads = false, writes = false;
  uint8_t variable = 0;
  uint64_t read = 0, written = 0;
  bool fence() const { return !reads && !writes; }
  bool swap() const { return reads && writes; }
};

// One way through a thread's steps: what its loads may see is chosen.
struct Trace {
  std::vector<Event> events;
  Registers registers{};
};

// ---- The ways through a thread --------------------------------------------------------------

class Tracer {
 public:
  Tracer(const Thread& thread, const Values& values) : thread_(thread), values_(values) {
    go(0, {}, {});
  }
  std::vector<Trace> take() { return std::move(traces_); }
  bool too_many() const { return too_many_; }

 private:
  static uint64_t local_or(const Locals& locals, uint8_t local, uint8_t number) {
    return local < kLocals ? locals[local] : number;
  }
  static void give(const Step& s, uint64_t result, Locals* locals, Trace* trace) {
    if (s.to < kLocals) (*locals)[s.to] = result;
    if (s.reg < kRegisters) trace->registers[s.reg] = static_cast<uint8_t>(result);
  }

  void go(uint32_t at, Locals locals, Trace trace) {
    for (; at < thread_.count; ++at) {
      const Step& s = thread_.steps[at];
      const uint64_t first = local_or(locals, s.first, s.expected);
      const uint64_t second = local_or(locals, s.second, s.value);
      switch (s.act) {
        case Act::kCompute:
          give(s, result_of(s.op, first, second), &locals, &trace);
          break;
        case Act::kSkip:
          if (first == 0) at += s.value;
          break;
        case Act::kTell:
          give(s, first, &locals, &trace);
          break;
        case Act::kWmb:
        case Act::kMb:
        case Act::kFlush:
        case Act::kClose:
          trace.events.push_back({});
          break;
        case Act::kStore:
          if (const auto v = variable_of(s, locals)) {
            trace.events.push_back({.writes = true, .variable = *v, .written = second});
          }
          break;
        case Act::kLoad:
        case Act::kAwait:
        case Act::kLinger:
        case Act::kCas:
        case Act::kTake:
        case Act::kUpdate:
          // What comes behind depends on what it sees.
          return see(at, first, second, std::move(locals), std::move(trace));
        default:
          break;
      }
    }
    too_many_ = too_many_ || traces_.size() >= kMostTraces;
    if (!too_many_) traces_.push_back(std::move(trace));
  }

  void see(uint32_t at, uint64_t first, uint64_t second, Locals locals, Trace trace) {
    const Step& s = thread_.steps[at];
    const auto variable = variable_of(s, locals);
    if (!variable) {
      give(s, 0, &locals, &trace);
      return go(at + 1, std::move(locals), std::move(trace));
    }
    for (const uint64_t seen : values_[*variable]) {
      if (too_many_) return;
      const Event load{.reads = true, .variable = *variable, .read = seen};
      Event swap{.reads = true, .writes = true, .variable = *variable, .read = seen};
      Locals then = locals;
      Trace with = trace;
      switch (s.act) {
        case Act::kTake:
          if (seen != first) continue;
          [[fallthrough]];
        case Act::kCas:
          swap.written = second;
          take_or_look(seen == first, swap, load, &with);
          break;
        case Act::kUpdate:
          swap.written = result_of(s.op, seen, second);
          take_or_look(s.op != Op::kPlusUnless || seen != s.expected, swap, load, &with);
          break;
        default:
          with.events.push_back(load);
          break;
      }
      give(s, seen, &then, &with);
      go(at + 1, std::move(then), std::move(with));
    }
  }
  // A swap that finds another value is a fence all the same.
  static void take_or_look(bool takes, const Event& swap, const Event& load, Trace* trace) {
    if (!takes) trace->events.push_back({});
    trace->events.push_back(takes ? swap : load);
  }

  const Thread& thread_;
  const Values& values_;
  std::vector<Trace> traces_;
  bool too_many_ = false;
};

// ---- The axioms -----------------------------------------------------------------------------

struct Access : Event {
  uint8_t thread = 0;
  size_t place = 0;  // among the events of its thread
  size_t age = 0;    // of a store: among those of its variable, from 1; 0 is what was there first
  size_t seen = 0;   // of a load: the age of what it reads
};

class Execution {
 public:
  // `traces`: the one of each thread. What `left_out` has a bit of sends nothing.
  explicit Execution(const std::vector<const Trace*>& traces) : traces_(traces) {
    for (size_t t = 0; t < traces.size(); ++t) {
      for (size_t i = 0; i < traces[t]->events.size(); ++i) {
        const Event& e = traces[t]->events[i];
        if (!e.fence()) accesses_.push_back({e, static_cast<uint8_t>(t), i});
      }
    }
  }

  std::vector<Access>& accesses() { return accesses_; }

  bool allowed() const { return !broken(&Execution::coherent) && !broken(&Execution::before); }

 private:
  using Relation = bool (Execution::*)(const Access&, const Access&) const;

  static bool same_thread_in_order(const Access& a, const Access& b) {
    return a.thread == b.thread && a.place < b.place;
  }
  bool fence_between(const Access& a, const Access& b) const {
    const auto& events = traces_[a.thread]->events;
    for (size_t i = a.place; i <= b.place; ++i) {
      if (events[i].fence() || events[i].swap()) return true;
    }
    return false;
  }
  bool published(const Access& a, const Access& b) const {
    return a.writes && same_thread_in_order(a, b) && fence_between(a, b);
  }
  static bool reads_from(const Access& a, const Access& b) {
    return a.variable == b.variable && a.writes && b.reads && b.seen == a.age;
  }
  static bool misses(const Access& a, const Access& b) {
    return a.variable == b.variable && a.reads && b.writes && a.seen < b.age && &a != &b;
  }
  static bool is_older(const Access& a, const Access& b) {
    return a.variable == b.variable && a.writes && b.writes && a.age < b.age;
  }

  bool coherent(const Access& a, const Access& b) const {
    return (a.variable == b.variable && same_thread_in_order(a, b)) || reads_from(a, b) ||
           misses(a, b) || is_older(a, b);
  }
  bool before(const Access& a, const Access& b) const {
    if (same_thread_in_order(a, b)) {
      // A processor may load before an earlier store of its own.
      if (a.reads || b.writes || published(a, b)) return true;
    }
    if (a.thread != b.thread && reads_from(a, b)) return true;
    // What misses a store, or is older, was made before the store was published.
    return std::any_of(accesses_.begin(), accesses_.end(), [&](const Access& w) {
      return a.thread != w.thread && (misses(a, w) || is_older(a, w)) && published(w, b);
    });
  }

  // Whether the relation has a cycle.
  bool broken(Relation relation) const {
    const size_t n = accesses_.size();
    std::vector<size_t> waits(n);  // for so many before it
    for (size_t b = 0; b < n; ++b) {
      for (size_t a = 0; a < n; ++a) waits[b] += (this->*relation)(accesses_[a], accesses_[b]);
    }
    std::vector<size_t> free;
    for (size_t a = 0; a < n; ++a) {
      if (waits[a] == 0) free.push_back(a);
    }
    size_t done = 0;
    for (; done < free.size(); ++done) {
      for (size_t b = 0; b < n; ++b) {
        if ((this->*relation)(accesses_[free[done]], accesses_[b]) && --waits[b] == 0) {
          free.push_back(b);
        }
      }
    }
    return done < n;
  }

  const std::vector<const Trace*>& traces_;
  std::vector<Access> accesses_;
};

// ---- All executions -------------------------------------------------------------------------

class Judge {
 public:
  Judge(const Program& program, std::vector<std::vector<Trace>> traces)
      : program_(program), traces_(std::move(traces)) {
    for (size_t v = 0; v < kVariables; ++v) {
      bool stored = false, swapped = false;
      for (const auto& of_thread : traces_) {
        for (const Trace& t : of_thread) {
          for (const Event& e : t.events) {
            if (e.variable == v) (e.reads ? swapped : stored) |= e.writes;
          }
        }
      }
      if (stored && swapped) found_.not_judged = "a word is both stored and swapped";
    }
    if (found_.not_judged.empty()) choose_trace();
    if (executions_ > kMostExecutions) found_.not_judged = "it has too many executions";
  }
  Outcomes take() { return std::move(found_); }

 private:
  void choose_trace() {
    if (executions_ > kMostExecutions) return;
    if (chosen_.size() == traces_.size()) return leave_out();
    for (const Trace& t : traces_[chosen_.size()]) {
      chosen_.push_back(&t);
      choose_trace();
      chosen_.pop_back();
    }
  }

  void leave_out() {
    ++executions_;
    Execution execution(chosen_);
    std::vector<Access>& all = execution.accesses();
    for (const Access& a : all) {
      if (a.reads && !is_there(all, a)) return;
    }
    leave_out(execution, 0);
  }
  uint64_t first_of(uint8_t variable) const { return program_.initial[variable]; }
  bool is_there(const std::vector<Access>& all, const Access& load) const {
    return load.read == first_of(load.variable) ||
           std::any_of(all.begin(), all.end(), [&](const Access& a) {
             return a.writes && a.variable == load.variable && a.written == load.read &&
                    (a.thread != load.thread || a.place < load.place);
           });
  }
  // Each plain store of a value that is there already, with it and without.
  void leave_out(const Execution& execution, size_t from) {
    Execution with = execution;
    std::vector<Access>& all = with.accesses();
    for (size_t at = from; at < all.size(); ++at) {
      const Access& a = all[at];
      if (!a.writes || a.reads) continue;
      const bool repeats =
          a.written == first_of(a.variable) ||
          std::any_of(all.begin(), all.end(), [&](const Access& b) {
            return &a != &b && b.writes && b.variable == a.variable && b.written == a.written;
          });
      if (!repeats) continue;
      Execution without = with;
      without.accesses().erase(without.accesses().begin() + static_cast<ptrdiff_t>(at));
      leave_out(without, at);
    }
    choose_order(with, 0);
  }

  // The order of each variable's stores.
  void choose_order(Execution& execution, uint8_t variable) {
    if (executions_ > kMostExecutions) return;
    if (variable == program_.variables) return choose_reads(execution, 0);
    std::vector<size_t> stores;
    std::vector<Access>& all = execution.accesses();
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].writes && all[i].variable == variable) stores.push_back(i);
    }
    do {
      last_[variable] = stores.empty() ? first_of(variable) : all[stores.back()].written;
      bool swaps_fit = true;
      for (size_t age = 1; age <= stores.size(); ++age) {
        Access& a = all[stores[age - 1]];
        a.age = age;
        const uint64_t there = age == 1 ? first_of(variable) : all[stores[age - 2]].written;
        if (!a.reads) continue;
        a.seen = age - 1;  // nothing comes between the load and the store of a swap
        swaps_fit = swaps_fit && a.read == there;
      }
      if (swaps_fit) choose_order(execution, static_cast<uint8_t>(variable + 1));
    } while (std::next_permutation(stores.begin(), stores.end()));
  }

  // Which store each load reads.
  void choose_reads(Execution& execution, size_t from) {
    if (executions_ > kMostExecutions || found_.allowed.contains(outcome())) return;
    std::vector<Access>& all = execution.accesses();
    while (from < all.size() && (!all[from].reads || all[from].writes)) ++from;
    if (from == all.size()) {
      ++executions_;
      if (execution.allowed()) found_.allowed.insert(outcome());
      return;
    }
    Access& load = all[from];
    if (load.read == first_of(load.variable)) {
      load.seen = 0;
      choose_reads(execution, from + 1);
    }
    for (size_t i = 0; i < all.size(); ++i) {
      const Access& a = all[i];
      if (!a.writes || a.variable != load.variable || a.written != load.read) continue;
      load.seen = a.age;
      choose_reads(execution, from + 1);
    }
  }

  Outcome outcome() const {
    Outcome o{};
    for (const Trace* t : chosen_) {
      for (size_t r = 0; r < kRegisters; ++r) o[r] |= t->registers[r];
    }
    for (size_t v = 0; program_.finals && v < program_.variables; ++v) {
      o[kRegisters + v] = static_cast<uint8_t>(last_[v]);
    }
    return o;
  }

  const Program& program_;
  const std::vector<std::vector<Trace>> traces_;
  std::vector<const Trace*> chosen_;
  std::array<uint64_t, kVariables> last_{};
  Outcomes found_;
  size_t executions_ = 0;
};

bool stores(const Step& s) {
  return s.act == Act::kStore || s.act == Act::kCas || s.act == Act::kTake || s.act == Act::kUpdate;
}

}  // namespace

Outcomes outcomes_of(const Program& program) {
  Values values;
  for (size_t v = 0; v < kVariables; ++v) values[v].insert(program.initial[v]);
  size_t stores_left = 1;
  for (uint8_t t = 0; t < program.count; ++t) {
    const Thread& thread = program.threads[t];
    stores_left += static_cast<size_t>(
        std::count_if(thread.steps.begin(), thread.steps.begin() + thread.count, stores));
  }
  // What is stored may depend on what is loaded, so that comes step by step. Each store is made
  // once.
  for (;; --stores_left) {
    Values then = values;
    std::vector<std::vector<Trace>> traces;
    for (uint8_t t = 0; t < program.count; ++t) {
      Tracer tracer(program.threads[t], values);
      if (tracer.too_many()) return {{}, "a thread has too many ways through it"};
      traces.push_back(tracer.take());
      for (const Trace& trace : traces.back()) {
        for (const Event& e : trace.events) {
          if (e.writes) then[e.variable].insert(e.written);
        }
      }
    }
    if (then == values || stores_left == 0) return Judge(program, std::move(traces)).take();
    for (const auto& of_variable : then) {
      if (of_variable.size() > kMostValues) return {{}, "a variable has too many values"};
    }
    values = std::move(then);
  }
}

}  // namespace cmi::test
