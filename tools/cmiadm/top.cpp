// cmiadm top: what the contexts of the nodes are doing, over and over.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>

#include "ask.hpp"
#include "command.hpp"
#include "peers.hpp"
#include "text.hpp"

namespace cmi::adm {

namespace {

constexpr const char* kClear = "\033[H\033[2J";

std::string pid_text(const ContextRow& c) { return c.pid > 0 ? std::to_string(c.pid) : "?"; }

size_t counter(std::string_view name) {
  for (size_t i = 0; i < node::kCounterNames.size(); ++i) {
    if (name == node::kCounterNames[i]) return i;
  }
  std::abort();  // a name that stands in this file
}

struct Sample {  // one context at one moment
  Nanos at = 0;
  node::ContextReport report;
};
using Samples = std::map<ContextId, Sample>;

// Where a context with this id is: its process, if it is one of these nodes', else its name.
std::string whereabouts(const Survey& survey, const ContextId& id) {
  for (const NodeRow& node : survey.nodes) {
    for (const ContextRow& c : node.contexts) {
      if (c.id == id) return printable(node.called()) + " " + pid_text(c);
    }
  }
  return hex16(id.hi);
}

// What was counted, or where there was an earlier look, how much of it a second.
std::string rate_of(uint64_t total, const uint64_t* was, Nanos span, bool bytes) {
  if (was == nullptr) return bytes ? human_bytes(total) : std::to_string(total);
  const double seconds = static_cast<double>(span) / kSecond;
  const double per_second =
      seconds > 0 && total > *was ? static_cast<double>(total - *was) / seconds : 0;
  return bytes ? human_bytes(static_cast<uint64_t>(per_second)) : fmt::format("{:.0f}", per_second);
}

std::string rate(const Sample& now, const Sample* before, const char* name, bool bytes = false) {
  const size_t i = counter(name);
  return rate_of(now.report.counters[i], before != nullptr ? &before->report.counters[i] : nullptr,
                 before != nullptr ? now.at - before->at : 0, bytes);
}

const char* link_state(const node::LinkLine& l) {
  if (l.dead) return "dead";
  if (l.unreachable > 0) return "unreachable";
  return l.silent == 0 ? "new" : "up";
}

// What is printed of one look: on a terminal, as much as it shows.
class Page {
 public:
  void line(std::string text) { lines_.push_back(std::move(text)); }
  void table(const Table& table) {
    if (table.empty()) return;
    line("");
    for (std::string& row : table.lines()) line(std::move(row));
  }
  // `rows`, `columns` and what the last row says; 0: all.
  void print(const Screen& screen, const char* last) const {
    const bool fits = screen.rows == 0 || lines_.size() + 2 <= screen.rows;
    const size_t shown = fits ? lines_.size() : screen.rows > 2 ? screen.rows - 2 : 1;
    for (size_t i = 0; i < shown; ++i) fmt::print("{}\n", clipped(lines_[i], screen.columns));
    if (*last == '\0') return;
    const std::string rest =
        fits ? "" : fmt::format(" ({} are left out)", counted(lines_.size() - shown, "line"));
    fmt::print("{}\n", clipped(last + rest, screen.columns));
  }

 private:
  std::vector<std::string> lines_;
};

struct Pair {  // what a context told now, and before; no before: since it began
  const NodeRow* node;
  const ContextRow* context;
  const Sample* now;
  const Sample* before;
};

template <class Line>
const Line* line_of(const std::vector<Line> node::ContextReport::*lines, const Sample* sample,
                    int32_t id) {
  if (sample == nullptr) return nullptr;
  for (const Line& line : sample->report.*lines) {
    if (line.id == id) return &line;
  }
  return nullptr;
}

// Per segment: what each import costs, and what each home has told its importers.
void add_segments(const std::vector<Pair>& all, Page* page) {
  Table imports({"PID", "IMPORT", "LOAD MISSES", "STORE MISSES", "BYTES IN", "BYTES OUT",
                 "PUBLISHED", "NOTICES", "EXCEPTIONS", "USELESS"});
  Table homes({"PID", "SEGMENT", "PUBLISHED", "NOTICES SENT", "IMPORTERS"});
  for (const Pair& p : all) {
    const Nanos span = p.before != nullptr ? p.now->at - p.before->at : 0;
    for (const node::ImportLine& i : p.now->report.imports) {
      const auto* was = line_of(&node::ContextReport::imports, p.before, i.id);
      std::vector<std::string> row{pid_text(*p.context), std::to_string(i.id)};
      for (size_t c = 0; c < i.counters.size(); ++c) {
        const bool bytes = std::string_view(node::kImportCounterNames[c]).starts_with("bytes_");
        row.push_back(
            rate_of(i.counters[c], was != nullptr ? &was->counters[c] : nullptr, span, bytes));
      }
      imports.row(std::move(row));
    }
    for (const node::HomeLine& h : p.now->report.homes) {
      if (h.sharers.empty()) continue;
      const auto* was = line_of(&node::ContextReport::homes, p.before, h.id);
      homes.row(
          {pid_text(*p.context), std::to_string(h.id),
           rate_of(h.publications, was != nullptr ? &was->publications : nullptr, span, false),
           rate_of(h.notifications, was != nullptr ? &was->notifications : nullptr, span, false),
           std::to_string(h.sharers.size())});
    }
  }
  for (const Table* t : {&imports, &homes}) page->table(*t);
}

void add_links(const Survey& survey, const std::vector<Pair>& all, Page* page) {
  Table listeners({"PID", "REACHED OVER"});
  Table links({"PID", "LINK TO HOME", "OVER", "STATE", "LAST ANSWER TOOK", "HEARD OF"});
  Table imports({"PID", "IMPORT", "HOME", "STATE", "CACHED", "LIMIT", "DIRTY PAGES"});
  for (const Pair& p : all) {
    const Sample* sample = p.now;
    const std::string pid = pid_text(*p.context);
    for (const std::string& listener : sample->report.listeners) listeners.row({pid, listener});
    for (const node::ImportLine& i : sample->report.imports) {
      imports.row({pid, std::to_string(i.id), whereabouts(survey, i.home),
                   import_state_name(i.state), human_bytes(i.cached),
                   i.limit == 0 ? "-" : human_bytes(i.limit), std::to_string(i.dirty)});
    }
    for (const node::LinkLine& l : sample->report.links) {
      links.row({pid, whereabouts(survey, l.home), l.way, link_state(l),
                 l.took == 0 ? "-" : human_time(l.took),
                 l.silent == 0 ? "never" : human_time(l.silent) + " ago"});
    }
  }
  for (const Table* t : {&listeners, &imports, &links}) page->table(*t);
}

// Since the look before, if there was one.
HistogramCounts counts_of(const Pair& p, size_t kind) {
  HistogramCounts counts = p.now->report.times[kind].counts;
  for (size_t i = 0; p.before != nullptr && i < counts.size(); ++i)
    counts[i] -= std::min(counts[i], p.before->report.times[kind].counts[i]);
  return counts;
}

std::string time_text(uint64_t nanos) {
  return nanos == UINT64_MAX ? "over 17 s" : human_time(nanos);
}

void add_times(const std::vector<Pair>& all, Page* page) {
  Table times({"PID", "TIMES OF", "COUNTED", "HALF WITHIN", "99 % WITHIN"});
  for (const Pair& p : all) {
    for (size_t kind = 0; kind < node::kTimeNames.size(); ++kind) {
      const HistogramCounts counts = counts_of(p, kind);
      uint64_t sum = 0;
      for (uint64_t n : counts) sum += n;
      if (sum == 0) continue;
      times.row({pid_text(*p.context), node::kTimeNames[kind], std::to_string(sum),
                 time_text(quantile(counts, 0.5)), time_text(quantile(counts, 0.99))});
    }
  }
  page->table(times);
}

// What counts for who is busy: how often its threads had to wait for a page, and what it published.
uint64_t work_of(const Pair& p) {
  uint64_t sum = 0;
  for (const char* name : {"load_misses", "store_misses", "publications", "cas_calls"}) {
    const size_t i = counter(name);
    const uint64_t was = p.before != nullptr ? p.before->report.counters[i] : 0;
    sum += std::max(p.now->report.counters[i], was) - was;
  }
  return sum;
}

// The contexts that have answered; those that worked most come first.
std::vector<Pair> pairs_of(const Survey& survey, const Samples& now, const Samples& before,
                           bool rates) {
  std::vector<Pair> all;
  for (const NodeRow& node : survey.nodes) {
    for (const ContextRow& c : node.contexts) {
      const auto at = now.find(c.id);
      if (at == now.end()) continue;
      const auto was = before.find(c.id);
      if (rates && was == before.end()) continue;  // from the next time on
      all.push_back({&node, &c, &at->second, rates ? &was->second : nullptr});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Pair& a, const Pair& b) { return work_of(a) > work_of(b); });
  return all;
}

Page page_of(const Survey& survey, const Samples& now, const Samples& before, bool rates,
             const std::vector<pid_t>& silent) {
  Page page;
  page.line(rates ? "per second" : "since each context began");
  Table contexts({"NODE", "PID", "PROGRAM", "LOAD MISSES", "STORE MISSES", "BYTES IN", "BYTES OUT",
                  "PUBLISHED", "INVALIDATED", "USELESS", "SWAPS", "LOST", "HELD BACK", "NO TWIN",
                  "EXCEPTIONS"});
  const std::vector<Pair> all = pairs_of(survey, now, before, rates);
  for (const Pair& p : all) {
    const Sample& s = *p.now;
    const Sample* base = p.before;
    contexts.row({p.node->called(), pid_text(*p.context),
                  p.context->program.empty() ? "-" : p.context->program,
                  rate(s, base, "load_misses"), rate(s, base, "store_misses"),
                  rate(s, base, "bytes_fetched", true), rate(s, base, "bytes_written_back", true),
                  rate(s, base, "publications"), rate(s, base, "invalidations_received"),
                  rate(s, base, "invalidations_useless"), rate(s, base, "cas_calls"),
                  rate(s, base, "cas_lost"), rate(s, base, "requests_held_back"),
                  rate(s, base, "twins_short"), rate(s, base, "exceptions")});
  }
  for (std::string& row : contexts.lines()) page.line(std::move(row));
  add_times(all, &page);
  add_segments(all, &page);
  add_links(survey, all, &page);
  for (pid_t pid : silent) page.line(fmt::format("process {} does not answer", pid));
  return page;
}

Json json_of(const node::ImportLine& i) {
  Json json{{"id", i.id},         {"home", hex32(i.home)}, {"state", import_state_name(i.state)},
            {"cached", i.cached}, {"limit", i.limit},      {"dirty_pages", i.dirty},
            {"way", i.way}};
  for (size_t k = 0; k < i.counters.size(); ++k) {
    json[node::kImportCounterNames[k]] = i.counters[k];
  }
  return json;
}

Json json_of(const node::HomeLine& h) {
  return {{"id", h.id},
          {"publications", h.publications},
          {"notifications", h.notifications},
          {"importers", h.sharers.size()}};
}

Json json_of(const node::LinkLine& l) {
  return {{"home", hex32(l.home)}, {"state", link_state(l)}, {"over", l.way},
          {"took_ns", l.took},     {"silent_ns", l.silent},  {"unreachable_ns", l.unreachable}};
}

Json json_of(const NodeRow& node, const ContextRow& c, const node::ContextReport& r) {
  Json json{{"node", node.name}, {"name", text_or_null(node.cmi_node)}, {"pid", c.pid}};
  for (size_t i = 0; i < r.counters.size(); ++i) json[node::kCounterNames[i]] = r.counters[i];
  const auto add = [&](const char* name, const auto& lines) {
    Json& list = json[name] = Json::array();
    for (const auto& line : lines) list.push_back(json_of(line));
  };
  for (size_t i = 0; i < r.times.size(); ++i) {
    json["times"][node::kTimeNames[i]] = {{"sum_ns", r.times[i].sum},
                                          {"p50_ns", quantile(r.times[i].counts, 0.5)},
                                          {"p99_ns", quantile(r.times[i].counts, 0.99)}};
  }
  add("imports", r.imports);
  add("homes", r.homes);
  add("links", r.links);
  json["listeners"] = r.listeners;
  return json;
}

void print_json(const Survey& survey, const Samples& now, const std::vector<pid_t>& silent) {
  Json contexts = Json::array();
  for (const NodeRow& node : survey.nodes) {
    for (const ContextRow& c : node.contexts) {
      const auto at = now.find(c.id);
      if (at != now.end()) contexts.push_back(json_of(node, c, at->second.report));
    }
  }
  print_line(Json{{"contexts", std::move(contexts)}, {"silent", silent}});
}

// Sleeps; false when the user has had enough: q, or the end of a terminal's input.
bool pause(Nanos span, bool terminal) {
  pollfd in{terminal ? STDIN_FILENO : -1, POLLIN, 0};
  const Deadline deadline = Deadline::in(span);
  while (!deadline.passed()) {
    const int ready = poll(&in, 1, static_cast<int>(deadline.left() / kMilli) + 1);
    if (ready <= 0) continue;
    char c = 'q';
    if (read(STDIN_FILENO, &c, 1) <= 0 || c == 'q') return false;
  }
  return true;
}

}  // namespace

int top(const Options& options) {
  const bool terminal = isatty(STDOUT_FILENO) == 1 && isatty(STDIN_FILENO) == 1 && !options.json;
  const unsigned rounds = options.count != 0 ? options.count : terminal ? 0 : 1;
  Samples before;
  for (unsigned round = 1;; ++round) {
    const Survey survey = options.look();
    if (!survey.trouble.empty()) {
      complain_about(survey);
      return kTrouble;
    }
    Samples now;
    std::vector<pid_t> silent;
    for (const NodeRow& node : survey.nodes) {
      Reports reports = ask_contexts(options.runtime_dir, node, options.wait);
      for (const ContextRow& c : node.contexts) {
        const auto at = reports.by_slot.find(c.slot);
        if (at != reports.by_slot.end()) now[c.id] = {cmi::now(), std::move(at->second)};
      }
      silent.insert(silent.end(), reports.silent.begin(), reports.silent.end());
    }
    if (options.json) {
      print_json(survey, now, silent);
    } else {
      if (terminal) fmt::print("{}", kClear);
      if (round > 1 && !terminal) fmt::print("\n");
      page_of(survey, now, before, round > 1, silent)
          .print(terminal ? screen() : Screen{}, terminal ? "q and return: quit" : "");
    }
    if (std::fflush(stdout) != 0) return kTrouble;
    if (round == rounds || !pause(options.every, terminal)) return kFine;
    before = std::move(now);
  }
}

}  // namespace cmi::adm
