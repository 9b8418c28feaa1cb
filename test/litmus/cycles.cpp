#include "litmus/cycles.hpp"

#include <algorithm>
#include <utility>

namespace cmi::test {

namespace {

constexpr size_t kMostEdges = 6, kMostThreads = 4;

struct Access {
  bool store = false;
  uint8_t variable = 0;
  uint8_t value = 0;   // stored, or seen by a load
  uint8_t thread = 0;  // those of a thread follow each other in the list
};

// The accesses of one meeting in the order of its edges; consecutive ones are in different threads.
std::vector<Access> accesses_of(Meeting meeting, uint8_t variable) {
  const Access first{true, variable, 1}, second{true, variable, 2};
  const Access sees_none{false, variable, 0}, sees_first{false, variable, 1},
      sees_second{false, variable, 2};
  switch (meeting) {
    case Meeting::kRfe:
      return {first, sees_first};
    case Meeting::kFre:
      return {sees_none, first};
    case Meeting::kCoe:
      return {first, second};
    case Meeting::kCoeRfe:
      return {first, second, sees_second};
    case Meeting::kFreRfe:
      return {sees_none, first, sees_first};
  }
  return {};
}

bool has_two_stores(Meeting m) { return m == Meeting::kCoe || m == Meeting::kCoeRfe; }

// All accesses along the cycle. The last of each meeting and the first of the next are in one
// thread; the last thread is the first one.
std::vector<Access> accesses_of(const Cycle& cycle) {
  std::vector<Access> all;
  uint8_t thread = 0;
  for (size_t i = 0; i < cycle.meetings.size(); ++i) {
    for (Access a : accesses_of(cycle.meetings[i], static_cast<uint8_t>(i))) {
      if (!all.empty() && all.back().variable == a.variable) ++thread;
      a.thread = thread;
      all.push_back(a);
    }
  }
  all.back().thread = 0;
  return all;
}

// Which accesses are known to have been made before which others.
class Before {
 public:
  explicit Before(size_t accesses) : n_(accesses), before_(accesses * accesses) {}
  void add(size_t a, size_t b) { before_[a * n_ + b] = true; }
  bool has_cycle() {
    for (size_t via = 0; via < n_; ++via) {
      for (size_t a = 0; a < n_; ++a) {
        for (size_t b = 0; b < n_; ++b) {
          if (before_[a * n_ + via] && before_[via * n_ + b]) add(a, b);
        }
      }
    }
    for (size_t a = 0; a < n_; ++a) {
      if (before_[a * n_ + a]) return true;
    }
    return false;
  }

 private:
  const size_t n_;
  std::vector<bool> before_;
};

bool publishes(Fence fence) {
  return fence == Fence::kWmb || fence == Fence::kMb || fence == Fence::kFlush;
}

Step step_of(Fence fence) {
  switch (fence) {
    case Fence::kNone:
      return nothing();
    case Fence::kRmb:
      return rmb();
    case Fence::kWmb:
      return wmb();
    case Fence::kMb:
      return mb();
    case Fence::kFlush:
      return flush_fb();
  }
  return nothing();
}

// The register of each load, in the order of the list.
uint8_t register_of(const std::vector<Access>& all, size_t at) {
  return static_cast<uint8_t>(std::count_if(all.begin(), all.begin() + static_cast<ptrdiff_t>(at),
                                            [](const Access& a) { return !a.store; }));
}

Step step_of(const std::vector<Access>& all, size_t at, bool swaps) {
  const Access& a = all[at];
  const auto variable = static_cast<Variable>(a.variable);
  if (a.store && swaps) return cas(variable, static_cast<uint8_t>(a.value - 1), a.value);
  if (a.store) return st(variable, a.value);
  // One that is to see a store waits a while for it.
  if (a.value != 0) return await(variable, a.value, register_of(all, at));
  return ld(variable, register_of(all, at));
}

std::vector<Cycle> turns_of(const Cycle& cycle) {
  std::vector<Cycle> turns;
  Cycle turned = cycle;
  for (size_t i = 0; i < cycle.meetings.size(); ++i) {
    std::rotate(turned.meetings.begin(), turned.meetings.begin() + 1, turned.meetings.end());
    std::rotate(turned.fences.begin(), turned.fences.begin() + 1, turned.fences.end());
    turns.push_back(turned);
  }
  return turns;
}

bool is_least_of_its_turns(const Cycle& cycle) {
  const auto key = [](const Cycle& c) { return std::pair(c.meetings, c.fences); };
  const auto turns = turns_of(cycle);
  return std::none_of(turns.begin(), turns.end(),
                      [&](const Cycle& other) { return key(other) < key(cycle); });
}

void add_all(Cycle cycle, size_t variables, std::vector<Cycle>* all) {
  if (cycle.meetings.size() < variables) {
    for (const Meeting m : kMeetings) {
      cycle.meetings.push_back(m);
      add_all(cycle, variables, all);
      cycle.meetings.pop_back();
    }
    return;
  }
  if (cycle.fences.size() < variables) {
    for (const Fence f : kFences) {
      cycle.fences.push_back(f);
      add_all(cycle, variables, all);
      cycle.fences.pop_back();
    }
    return;
  }
  const size_t accesses = accesses_of(cycle).size();
  // An edge leads to each access; a thread has two of them, or stores once between two edges.
  if (accesses > kMostEdges || accesses - variables > kMostThreads) return;
  if (!is_least_of_its_turns(cycle)) return;
  all->push_back(cycle);
  cycle.swaps = true;
  all->push_back(cycle);
}

}  // namespace

const char* name_of(Fence fence) {
  constexpr const char* kNames[] = {"po", "rmb", "wmb", "mb", "flush"};
  return kNames[static_cast<size_t>(fence)];
}

const char* name_of(Meeting meeting) {
  constexpr const char* kNames[] = {"Rfe", "Fre", "Coe", "Coe Rfe", "Fre Rfe"};
  return kNames[static_cast<size_t>(meeting)];
}

std::string Cycle::name() const {
  std::string name = swaps ? "swaps:" : "stores:";
  for (size_t i = 0; i < meetings.size(); ++i) {
    name += std::string(" ") + name_of(meetings[i]) + " " + name_of(fences[i]);
  }
  return name;
}

Program Cycle::program() const {
  const std::vector<Access> all = accesses_of(*this);
  Program p;
  const auto take = [&](size_t at) {
    Thread& t = p.threads[all[at].thread];
    t.process = all[at].thread;
    if (t.count == 1) {
      t.steps[t.count++] = step_of(fences[all[(at + all.size() - 1) % all.size()].variable]);
    }
    t.steps[t.count++] = step_of(all, at, swaps);
    p.count = std::max<uint8_t>(p.count, static_cast<uint8_t>(all[at].thread + 1));
  };
  take(all.size() - 1);  // the first thread begins with the last access of the list
  for (size_t at = 0; at + 1 < all.size(); ++at) take(at);
  p.finals = std::any_of(meetings.begin(), meetings.end(), has_two_stores);
  p.as_told = true;
  p.variables = static_cast<uint8_t>(meetings.size());
  return p;
}

bool Cycle::seen(const Outcome& outcome) const {
  const std::vector<Access> all = accesses_of(*this);
  for (size_t at = 0; at < all.size(); ++at) {
    if (!all[at].store && outcome[register_of(all, at)] != all[at].value) return false;
  }
  for (size_t i = 0; i < meetings.size(); ++i) {
    if (has_two_stores(meetings[i]) && final_of(outcome, static_cast<Variable>(i)) != 2) {
      return false;
    }
  }
  return true;
}

bool Cycle::forbidden() const {
  const std::vector<Access> all = accesses_of(*this);
  const size_t n = all.size();
  Before before(n);
  const auto in_one_thread = [&](size_t at) { return all[at].thread == all[(at + 1) % n].thread; };
  // What the thread publishes between this access and its next one.
  const auto is_published = [&](size_t at) {
    return in_one_thread(at) && (publishes(fences[all[at].variable]) ||
                                 (swaps && (all[at].store || all[(at + 1) % n].store)));
  };
  for (size_t at = 0; at < n; ++at) {
    const size_t next = (at + 1) % n;
    const Access &a = all[at], &b = all[next];
    if (in_one_thread(at)) {
      // A processor may load before an earlier store of its own.
      if (!a.store || b.store || is_published(at)) before.add(at, next);
    } else if (a.store && (!b.store || swaps)) {
      before.add(at, next);  // b reads a: a load, or a swap that found what a stored
    } else if (is_published(next)) {
      // a is older than the store b, or misses it: so it was made before b was published.
      before.add(at, (next + 1) % n);
    }
  }
  return before.has_cycle();
}

std::vector<Cycle> all_cycles() {
  std::vector<Cycle> all;
  for (const size_t variables : {size_t{2}, size_t{3}}) add_all({}, variables, &all);
  return all;
}

}  // namespace cmi::test
