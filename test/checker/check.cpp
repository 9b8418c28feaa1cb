// The checker: one cell after the other, each as a graph of its values. See check.hpp for the
// rules.
#include "checker/check.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "checker/order.hpp"

namespace cmi::checker {

namespace {

constexpr Time kNever = std::numeric_limits<Time>::max();
constexpr uint32_t kNoId = 0xffff;
constexpr uint32_t kAtFirst = 0;  // the id of a cell's first value

Time end_of(const Event& e) { return e.end != 0 ? e.end : kNever; }

uint8_t byte_of(uint64_t value, uint32_t k) { return static_cast<uint8_t>(value >> 8 * k); }

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// The barriers of one process that cover one set of addresses: which of those that began at or
// after some time was over first.
class Barriers {
 public:
  void add(const Event& event, Place place) { all_.push_back({event.begin, event.end, place}); }
  void seal() {
    std::sort(all_.begin(), all_.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
    for (size_t i = all_.size(); i-- > 1;) {
      if (all_[i].end < all_[i - 1].end) {
        all_[i - 1].end = all_[i].end;
        all_[i - 1].place = all_[i].place;
      }
    }
  }
  // The end of it, kNever for none.
  Time first_over(Time begun_from, Place* place) const {
    auto at = std::lower_bound(all_.begin(), all_.end(), begun_from,
                               [](const Entry& e, Time t) { return e.begin < t; });
    if (at == all_.end()) return kNever;
    *place = at->place;
    return at->end;
  }

 private:
  struct Entry {
    Time begin;
    Time end;  // after seal(): the lowest from here on, and whose it is
    Place place;
  };
  std::vector<Entry> all_;
};

struct Value {  // of a cell
  uint64_t bits = 0;
  Place by;  // who stored it; nobody the initial one
  uint32_t process = 0;
  Time begin = 0;         // of the store
  Time published = 0;     // from here on everyone meets it or a newer one; kNever
  Place barrier;          // that published it
  bool outlived = false;  // its process, which had not published it: then its death did
};

// One meeting of a thread with a value: as loaded, as stored, as found or put by a swap.
struct Touch {
  Place place;
  uint32_t order = 0;  // in its thread; the two of one swap follow each other
  uint32_t id = 0;
  Time begin = 0;
  Time end = 0;
  bool reads = false;
};

struct CellGraph {
  Cell cell;
  std::vector<Value> values{Value{}};  // by id
  std::vector<Touch> touches;
  std::vector<Swap> swaps;
  std::array<std::array<uint16_t, 256>, 8> named;  // by position in the cell, by byte: id

  explicit CellGraph(Cell c) : cell(c) {
    for (auto& row : named) row.fill(kNoId);
    for (auto& row : named) row[0] = kAtFirst;
    values[kAtFirst].published = std::numeric_limits<Time>::min();
  }
};

class Checker {
 public:
  explicit Checker(const History& history) : history_(history) {}

  Verdict run() {
    if (prepare() && take_stores() && take_loads()) {
      for (CellGraph& graph : graphs_) {
        if (!judge(graph)) break;
      }
    }
    return std::move(verdict_);
  }

 private:
  const Event& event(Place p) const { return history_.threads[p.thread].events[p.event]; }
  uint32_t process(Place p) const { return history_.threads[p.thread].process; }
  const Death* death(uint32_t process) const {
    for (const Death& d : history_.deaths) {
      if (d.process == process) return &d;
    }
    return nullptr;
  }

  bool fail(Fault fault, std::string explanation) {
    verdict_.fault = fault;
    verdict_.explanation = std::move(explanation);
    return false;
  }

  bool prepare();
  bool well_ended(Place place);
  bool take_stores();
  bool take_loads();
  bool take_unfinished_swaps();
  bool load(Place place, uint64_t bits, uint32_t order);
  void settle(CellGraph& graph);
  bool judge(CellGraph& graph);
  bool has_order(const CellGraph& graph, const Order& older);
  CellGraph* exactly(const Event& event);
  bool is_at_home(const CellGraph& graph, uint32_t process) const;
  uint32_t sharer(const CellGraph& graph, uint32_t process) const;
  bool shows_home(const CellGraph& graph, const Touch& t) const;

  std::string tell_story(const CellGraph& graph) const;
  std::string tell(Place place) const;
  std::string tell(const CellGraph& graph, uint32_t id) const;
  std::string tell(const CellGraph& graph, const Order& older, uint32_t from, uint32_t to,
                   int indent) const;

  const History& history_;
  Verdict verdict_;
  uint32_t processes_ = 0;
  std::vector<uint32_t> nodes_;     // by process
  Time start_ = kNever;             // of the first event; explanations count from here
  std::vector<CellGraph> graphs_;   // by cell
  std::vector<Barriers> barriers_;  // by process
  std::vector<std::map<uint32_t, Barriers>> line_barriers_;  // by process and line
};

bool Checker::prepare() {
  uint32_t free_from = 0;
  for (const Cell& cell : history_.cells) {
    const uint32_t w = cell.width;
    if ((w != 1 && w != 2 && w != 4 && w != 8) || cell.at < free_from) {
      return fail(Fault::kMalformed, "cells overlap or have no width");
    }
    free_from = cell.at + w;
    graphs_.emplace_back(cell);
  }
  for (const Thread& thread : history_.threads) {
    processes_ = std::max(processes_, thread.process + 1);
    if (!thread.events.empty()) start_ = std::min(start_, thread.events.front().begin);
  }
  nodes_.assign(processes_, kNoProcess);
  for (const Thread& thread : history_.threads) nodes_[thread.process] = thread.node;
  barriers_.resize(processes_);
  line_barriers_.resize(processes_);
  for (uint32_t t = 0; t < history_.threads.size(); ++t) {
    const Thread& thread = history_.threads[t];
    Time before = 0;
    for (uint32_t i = 0; i < thread.events.size(); ++i) {
      const Event& e = thread.events[i];
      if (e.begin < before || end_of(e) < e.begin) {
        return fail(Fault::kMalformed, tell({t, i}) + " has times that go back");
      }
      if (!well_ended({t, i})) return false;
      if (e.end == 0) continue;
      before = e.end;
      // A swap is a barrier for the stores before it.
      if (e.kind == Kind::kBarrier || e.kind == Kind::kSwap) {
        barriers_[thread.process].add(e, {t, i});
      } else if (e.kind == Kind::kLineFlush) {
        line_barriers_[thread.process][e.at / history_.line].add(e, {t, i});
      }
    }
  }
  for (auto& barriers : barriers_) barriers.seal();
  for (auto& lines : line_barriers_) {
    for (auto& [line, barriers] : lines) barriers.seal();
  }
  return true;
}

// Only stores and swaps may be without an end, and nothing of their thread in the same place
// follows.
bool Checker::well_ended(Place place) {
  const Event& e = event(place);
  if (e.end != 0) return true;
  if (e.kind != Kind::kStore && e.kind != Kind::kSwap) {
    return fail(Fault::kMalformed, tell(place) + " was never over");
  }
  ++verdict_.unfinished;
  const auto& events = history_.threads[place.thread].events;
  for (uint32_t i = place.event + 1; i < events.size(); ++i) {
    if (events[i].at < e.at + e.width && e.at < events[i].at + events[i].width) {
      return fail(Fault::kMalformed, tell({place.thread, i}) + " follows what was never over");
    }
  }
  return true;
}

CellGraph* Checker::exactly(const Event& e) {
  auto at = std::lower_bound(graphs_.begin(), graphs_.end(), e.at,
                             [](const CellGraph& g, uint32_t a) { return g.cell.at < a; });
  return at != graphs_.end() && at->cell.at == e.at && at->cell.width == e.width ? &*at : nullptr;
}

bool Checker::take_stores() {
  for (uint32_t t = 0; t < history_.threads.size(); ++t) {
    const Thread& thread = history_.threads[t];
    for (uint32_t i = 0; i < thread.events.size(); ++i) {
      const Event& e = thread.events[i];
      if (e.kind != Kind::kStore && e.kind != Kind::kSwap) continue;
      const bool swap = e.kind == Kind::kSwap;
      CellGraph* graph = exactly(e);
      if (graph == nullptr || (swap && e.width != 8)) {
        return fail(Fault::kMalformed, tell({t, i}) + " is not to a cell");
      }
      ++verdict_.accesses;
      if (swap && e.end != 0 && e.value != e.compare) continue;
      const auto id = static_cast<uint32_t>(graph->values.size());
      const Place place{t, i};
      Value value{swap ? e.desired : e.value, place, thread.process, e.begin, kNever, place};
      for (uint32_t k = 0; k < e.width; ++k) {
        uint16_t& name = graph->named[k][byte_of(value.bits, k)];
        if (name != kNoId) {
          return fail(Fault::kMalformed, tell({t, i}) + " shares a byte with another value");
        }
        name = static_cast<uint16_t>(id);
      }
      if (swap) {
        value.published = end_of(e);
        verdict_.swapped += e.end != 0;
      } else {
        value.published = barriers_[thread.process].first_over(end_of(e), &value.barrier);
        const auto& lines = line_barriers_[thread.process];
        if (const auto line = lines.find(e.at / history_.line); line != lines.end()) {
          Place flush;
          const Time over = line->second.first_over(end_of(e), &flush);
          if (over < value.published) {
            value.published = over;
            value.barrier = flush;
          }
        }
        if (const Death* end = death(graph->cell.home); end && value.published > end->lived) {
          value.published = kNever;
        }
        graph->touches.push_back({place, 2 * i, id, e.begin, end_of(e), false});
      }
      graph->values.push_back(value);
    }
  }
  return true;
}

bool Checker::take_loads() {
  for (uint32_t t = 0; t < history_.threads.size(); ++t) {
    const Thread& thread = history_.threads[t];
    for (uint32_t i = 0; i < thread.events.size(); ++i) {
      const Event& e = thread.events[i];
      const Place place{t, i};
      if (e.kind == Kind::kLoad) {
        ++verdict_.accesses;
        if (!load(place, e.value, 2 * i)) return false;
      } else if (e.kind == Kind::kSwap && e.end != 0) {
        if (!load(place, e.value, 2 * i)) return false;
        if (e.value != e.compare) continue;
        CellGraph& graph = *exactly(e);
        const uint32_t found = graph.named[0][byte_of(e.value, 0)];
        const uint32_t put = graph.named[0][byte_of(e.desired, 0)];
        graph.swaps.push_back({found, put, place});
        graph.touches.push_back({place, 2 * i + 1, put, e.begin, e.end, false});
      }
    }
  }
  return take_unfinished_swaps();
}

// Those that somebody has met the value of took place. One that is met only by another such swap
// shows once that one does, so all are looked at until nothing new is found.
bool Checker::take_unfinished_swaps() {
  std::vector<Place> left;
  for (uint32_t t = 0; t < history_.threads.size(); ++t) {
    const auto& events = history_.threads[t].events;
    for (uint32_t i = 0; i < events.size(); ++i) {
      if (events[i].kind == Kind::kSwap && events[i].end == 0) left.push_back({t, i});
    }
  }
  for (bool found = true; found;) {
    found = false;
    for (size_t k = 0; k < left.size(); ++k) {
      const Place place = left[k];
      const Event& e = event(place);
      CellGraph& graph = *exactly(e);
      const uint32_t put = graph.named[0][byte_of(e.desired, 0)];
      const bool met = std::any_of(graph.touches.begin(), graph.touches.end(),
                                   [&](const Touch& t) { return t.reads && t.id == put; });
      if (!met) continue;
      if (!load(place, e.compare, 2 * place.event)) return false;
      const uint32_t taken = graph.named[0][byte_of(e.compare, 0)];
      graph.swaps.push_back({taken, put, place});
      graph.touches.push_back({place, 2 * place.event + 1, put, e.begin, kNever, false});
      left.erase(left.begin() + static_cast<ptrdiff_t>(k));
      found = true;
      break;
    }
  }
  return true;
}

// What is met of the stores of the dead, where their home lives.
void Checker::settle(CellGraph& graph) {
  if (death(graph.cell.home) != nullptr) return;
  for (const Touch& t : graph.touches) {
    Value& value = graph.values[t.id];
    const Death* end = t.id == kAtFirst ? nullptr : death(value.process);
    if (end == nullptr || !t.reads || process(t.place) == value.process) continue;
    if (value.outlived || value.published != kNever) continue;
    value.outlived = true;
    ++verdict_.outlived;
    if (end->settled != 0) value.published = end->settled;
  }
}

// Tells the bytes that were loaded, or that a swap found, apart by cells.
bool Checker::load(Place place, uint64_t bits, uint32_t order) {
  const Event& e = event(place);
  const uint32_t end = e.at + e.width;
  auto next = std::lower_bound(graphs_.begin(), graphs_.end(), e.at,
                               [](auto& g, uint32_t a) { return g.cell.at + g.cell.width <= a; });
  for (uint32_t at = e.at; at < end;) {
    if (next == graphs_.end() || at < next->cell.at) {
      if (byte_of(bits, at - e.at) != 0) {
        return fail(Fault::kNeverStored,
                    tell(place) + " found something at " + std::to_string(at) + ", in no cell");
      }
      ++at;
      continue;
    }
    CellGraph& graph = *next++;
    const uint32_t stop = std::min(end, graph.cell.at + graph.cell.width);
    uint32_t id = kNoId;
    std::string mixed;
    for (; at < stop; ++at) {
      const uint32_t named = graph.named[at - graph.cell.at][byte_of(bits, at - e.at)];
      if (named == kNoId) {
        return fail(Fault::kNeverStored,
                    tell(place) + " found a byte at " + std::to_string(at) + " that nobody stored");
      }
      if (id != kNoId && named != id) {
        mixed += "\n  byte " + std::to_string(at) + " is of " + tell(graph, named) +
                 ", the one before it of " + tell(graph, id);
      }
      id = named;
    }
    if (!mixed.empty()) return fail(Fault::kMixed, tell(place) + " found a mixture:" + mixed);
    if (end_of(e) < graph.values[id].begin) {
      return fail(Fault::kTooEarly,
                  tell(place) + " found a value that was stored later, by " + tell(graph, id));
    }
    graph.touches.push_back({place, order, id, e.begin, end_of(e), true});
  }
  return true;
}

bool Checker::is_at_home(const CellGraph& graph, uint32_t process) const {
  const uint32_t home = graph.cell.home;
  return process == home ||
         (home < processes_ && nodes_[home] != kNoProcess && nodes_[home] == nodes_[process]);
}

// Who stands for all that load the cell from the same memory.
uint32_t Checker::sharer(const CellGraph& graph, uint32_t process) const {
  return is_at_home(graph, process) ? graph.cell.home : process;
}

// Whether what is met there is what the home has at some moment from its beginning to its end.
bool Checker::shows_home(const CellGraph& graph, const Touch& t) const {
  return event(t.place).kind == Kind::kSwap || is_at_home(graph, process(t.place));
}

// Collects which value is older than which, then looks for a cycle.
bool Checker::judge(CellGraph& graph) {
  settle(graph);
  const auto n = static_cast<uint32_t>(graph.values.size());
  const auto threads = static_cast<uint32_t>(history_.threads.size());
  struct Known {
    uint32_t order = std::numeric_limits<uint32_t>::max();
    Time since = kNever;
    Place first;
  };
  std::vector<Known> to_thread(size_t{threads} * n), to_process(size_t{processes_} * n);
  std::vector<Known> at_home(n);
  const bool home_lives = death(graph.cell.home) == nullptr;
  for (const Touch& t : graph.touches) {
    Known& own = to_thread[size_t{t.place.thread} * n + t.id];
    if (t.order < own.order) own = {t.order, t.end, t.place};
    const Value& value = graph.values[t.id];
    const bool swap = event(t.place).kind == Kind::kSwap;
    // A processor gives a thread its own stores before it gives them to other threads.
    const bool elsewhere = t.reads && value.by.thread != t.place.thread;
    // Another process has it from nowhere but from home.
    if (home_lives && t.end < at_home[t.id].since &&
        (swap || (elsewhere && (process(t.place) != value.process || shows_home(graph, t))))) {
      at_home[t.id] = {t.order, t.end, t.place};
    }
    if (!elsewhere) continue;
    Known& all = to_process[size_t{sharer(graph, process(t.place))} * n + t.id];
    if (t.end < all.since) all = {t.order, t.end, t.place};
  }

  Order older(n);
  for (uint32_t id = 1; id < n; ++id) older.add(kAtFirst, id, {Rule::kInitial, {}, {}, 0, 0});
  for (const Touch& t : graph.touches) {
    const Value& met = graph.values[t.id];
    const Known* thread = &to_thread[size_t{t.place.thread} * n];
    const Known* all = &to_process[size_t{sharer(graph, process(t.place))} * n];
    const uint32_t from = nodes_[met.process];
    const bool same_node = from != kNoProcess && from == nodes_[process(t.place)];
    if (t.id != kAtFirst && met.process != process(t.place) && !same_node &&
        thread[t.id].order == t.order) {
      ++verdict_.crossings;
    }
    bool bound = false;
    for (uint32_t id = 0; id < n; ++id) {
      const Value& value = graph.values[id];
      const bool published = value.published < t.begin;
      bound = bound || (published && id != kAtFirst && value.process != process(t.place));
      if (id == t.id || older.has(id, t.id)) continue;
      if (published) {
        const Rule rule = value.outlived ? Rule::kSettled : Rule::kPublished;
        older.add(id, t.id, {rule, value.by, t.place, 0, 0});
      } else if (thread[id].order < t.order) {
        older.add(id, t.id, {Rule::kThread, thread[id].first, t.place, 0, 0});
      } else if (all[id].since < t.begin) {
        older.add(id, t.id, {Rule::kProcess, all[id].first, t.place, 0, 0});
      } else if (at_home[id].since < t.begin && shows_home(graph, t)) {
        older.add(id, t.id, {Rule::kHome, at_home[id].first, t.place, 0, 0});
      }
    }
    verdict_.bound += t.reads && bound;
  }
  // What needs no swap to be explained is explained without.
  if (!has_order(graph, older)) return false;
  if (graph.swaps.empty()) return true;
  older.add_swaps(graph.swaps);
  return has_order(graph, older);
}

bool Checker::has_order(const CellGraph& graph, const Order& older) {
  if (older.is_one()) return true;
  const std::vector<uint32_t> cycle = older.shortest_cycle();
  std::string text = "no order of the values of the cell at " + std::to_string(graph.cell.at) +
                     " explains what was seen:";
  for (size_t i = 0; i < cycle.size(); ++i) {
    text += tell(graph, older, cycle[i], cycle[(i + 1) % cycle.size()], 2);
  }
  return fail(Fault::kOrder, text + tell_story(graph));
}

// Everything that happened to the cell, but for loads that told a thread nothing new.
std::string Checker::tell_story(const CellGraph& graph) const {
  std::vector<Touch> touches = graph.touches;
  std::sort(touches.begin(), touches.end(), [](const Touch& a, const Touch& b) {
    return std::tie(a.begin, a.order) < std::tie(b.begin, b.order);
  });
  std::string text = "\n  all that happened there:";
  std::map<uint32_t, uint32_t> met;  // by thread, the value it met last
  for (const Touch& t : touches) {
    const auto [last, first_time] = met.try_emplace(t.place.thread, t.id);
    if (!first_time && last->second == t.id) continue;
    last->second = t.id;
    text += "\n    " + hex(graph.values[t.id].bits) + (t.reads ? " found by " : " put by ") +
            tell(t.place);
  }
  return text;
}

// ---- In words -------------------------------------------------------------------------------

std::string Checker::tell(Place place) const {
  const Event& e = event(place);
  static const char* const kNames[] = {"load", "store", "swap", "barrier", "line flush"};
  std::string text = std::string(kNames[static_cast<size_t>(e.kind)]) + " #" +
                     std::to_string(place.event) + " of thread " + std::to_string(place.thread) +
                     " in process " + std::to_string(process(place));
  if (e.width != 0) {
    text += " (" + std::to_string(e.width) + " bytes at " + std::to_string(e.at) + ", " +
            (e.kind == Kind::kSwap ? hex(e.compare) + " to " + hex(e.desired) + " found " : "") +
            hex(e.value) + ")";
  }
  return text + " [" + std::to_string(e.begin - start_) + ".." +
         (e.end != 0 ? std::to_string(e.end - start_) : "never over") + "]";
}

std::string Checker::tell(const CellGraph& graph, uint32_t id) const {
  return id == kAtFirst ? "the initial value" : "the " + tell(graph.values[id].by);
}

std::string Checker::tell(const CellGraph& graph, const Order& older, uint32_t from, uint32_t to,
                          int indent) const {
  const std::string start = "\n" + std::string(static_cast<size_t>(indent), ' ');
  const Reason& reason = older.reason(from, to);
  std::string text =
      start + hex(graph.values[from].bits) + " is older than " + hex(graph.values[to].bits) + ": ";
  switch (reason.rule) {
    case Rule::kInitial:
      return text + "it is the initial value";
    case Rule::kThread:
      return text + "one thread met them in this order:" + start + "  " + tell(reason.first) +
             start + "  " + tell(reason.second);
    case Rule::kProcess:
      return text +
             "the threads of one process met them, or those at home, in this order:" + start +
             "  " + tell(reason.first) + start + "  " + tell(reason.second);
    case Rule::kHome:
      return text + "it was at home before the other was met there:" + start + "  " +
             tell(reason.first) + start + "  " + tell(reason.second);
    case Rule::kPublished: {
      const Value& value = graph.values[from];
      text += "it was published before the other was met:" + start + "  " + tell(value.by);
      if (value.barrier.thread != value.by.thread || value.barrier.event != value.by.event) {
        text += start + "  " + tell(value.barrier);
      }
      return text + start + "  " + tell(reason.second);
    }
    case Rule::kSettled:
      return text +
             "it outlived its process, whose death was settled before the other was met:" + start +
             "  " + tell(graph.values[from].by) + start + "  " + tell(reason.second);
    case Rule::kSwap:
      return text + "nothing comes between the two values of a swap:" + start + "  " +
             tell(reason.first) + tell(graph, older, reason.from, reason.to, indent + 2);
    case Rule::kNone:
      break;
  }
  return text;
}

}  // namespace

const char* fault_name(Fault fault) {
  static const char* const kNames[] = {"none",  "malformed", "never stored",
                                       "mixed", "too early", "order"};
  return kNames[static_cast<size_t>(fault)];
}

Verdict check(const History& history) { return Checker(history).run(); }

}  // namespace cmi::checker
