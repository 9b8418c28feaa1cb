// cmiadm top: what the contexts of the nodes are doing, over and over.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "ask.hpp"
#include "command.hpp"
#include "peers.hpp"
#include "text.hpp"

namespace cmi::adm {

namespace {

constexpr const char* kClear = "\033[H\033[2J";

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
      if (c.id == id) return "pid " + std::to_string(c.pid);
    }
  }
  return hex16(id.hi);
}

std::string rate(const Sample& now, const Sample* before, const char* name, bool bytes = false) {
  const uint64_t total = now.report.counters[counter(name)];
  if (before == nullptr) return bytes ? human_bytes(total) : std::to_string(total);
  const double seconds = static_cast<double>(now.at - before->at) / kSecond;
  const uint64_t was = before->report.counters[counter(name)];
  const double per_second =
      seconds > 0 && total > was ? static_cast<double>(total - was) / seconds : 0;
  return bytes ? human_bytes(static_cast<uint64_t>(per_second)) : fmt::format("{:.0f}", per_second);
}

const char* link_state(const node::LinkLine& l) {
  if (l.dead) return "dead";
  if (l.unreachable > 0) return "unreachable";
  return l.silent == 0 ? "new" : "up";
}

void print_links(const Survey& survey, const std::vector<std::pair<pid_t, const Sample*>>& all) {
  Table links({"PID", "LINK TO HOME", "STATE", "LAST ANSWER TOOK", "HEARD OF"});
  Table imports({"PID", "IMPORT", "HOME", "STATE", "CACHED", "LIMIT", "DIRTY PAGES"});
  for (const auto& [pid, sample] : all) {
    for (const node::ImportLine& i : sample->report.imports) {
      imports.row({std::to_string(pid), std::to_string(i.id), whereabouts(survey, i.home),
                   import_state_name(i.state), human_bytes(i.cached),
                   i.limit == 0 ? "-" : human_bytes(i.limit), std::to_string(i.dirty)});
    }
    for (const node::LinkLine& l : sample->report.links) {
      links.row({std::to_string(pid), whereabouts(survey, l.home), link_state(l),
                 l.took == 0 ? "-" : human_time(l.took),
                 l.silent == 0 ? "never" : human_time(l.silent) + " ago"});
    }
  }
  for (const Table* t : {&imports, &links}) {
    if (t->empty()) continue;
    std::puts("");
    t->print();
  }
}

void print_samples(const Survey& survey, const Samples& now, const Samples& before, bool rates,
                   const std::vector<pid_t>& silent) {
  std::printf("%s\n", rates ? "per second" : "since each context began");
  Table contexts({"PID", "PROGRAM", "LOAD MISSES", "STORE MISSES", "BYTES IN", "BYTES OUT",
                  "PUBLISHED", "INVALIDATED", "SWAPS", "LOST", "EXCEPTIONS"});
  std::vector<std::pair<pid_t, const Sample*>> all;
  for (const NodeRow& node : survey.nodes) {
    for (const ContextRow& c : node.contexts) {
      const auto at = now.find(c.id);
      if (at == now.end()) continue;
      const auto was = before.find(c.id);
      if (rates && was == before.end()) continue;  // from the next time on
      const Sample* base = rates ? &was->second : nullptr;
      const Sample& s = at->second;
      contexts.row({std::to_string(c.pid), c.program.empty() ? "-" : c.program,
                    rate(s, base, "load_misses"), rate(s, base, "store_misses"),
                    rate(s, base, "bytes_fetched", true), rate(s, base, "bytes_written_back", true),
                    rate(s, base, "publications"), rate(s, base, "invalidations_received"),
                    rate(s, base, "cas_calls"), rate(s, base, "cas_lost"),
                    rate(s, base, "exceptions")});
      all.emplace_back(c.pid, &s);
    }
  }
  contexts.print();
  print_links(survey, all);
  for (pid_t pid : silent) std::printf("process %d does not answer\n", pid);
}

void print_json(const Survey& survey, const Samples& now, const std::vector<pid_t>& silent) {
  Json json;
  json.open('{').key("contexts").open('[');
  for (const NodeRow& node : survey.nodes) {
    for (const ContextRow& c : node.contexts) {
      const auto at = now.find(c.id);
      if (at == now.end()) continue;
      const node::ContextReport& r = at->second.report;
      json.open('{').field("node", node.name).field("pid", static_cast<uint64_t>(c.pid));
      for (size_t i = 0; i < r.counters.size(); ++i) {
        json.field(node::kCounterNames[i], r.counters[i]);
      }
      json.key("imports").open('[');
      for (const node::ImportLine& i : r.imports) {
        json.open('{').field("id", static_cast<uint64_t>(i.id));
        json.field("home", hex32(i.home)).field("state", import_state_name(i.state));
        json.field("cached", i.cached).field("limit", i.limit).field("dirty_pages", i.dirty);
        json.close();
      }
      json.close().key("links").open('[');
      for (const node::LinkLine& l : r.links) {
        json.open('{').field("home", hex32(l.home)).field("state", link_state(l));
        json.field("took_ns", l.took).field("silent_ns", l.silent);
        json.field("unreachable_ns", l.unreachable).close();
      }
      json.close().close();
    }
  }
  json.close().key("silent").open('[');
  for (pid_t pid : silent) json.value(static_cast<uint64_t>(pid));
  json.close().close();
  json.print();
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
      if (terminal) std::fputs(kClear, stdout);
      if (round > 1 && !terminal) std::puts("");
      print_samples(survey, now, before, round > 1, silent);
      if (terminal) std::puts("\nq and return: quit");
    }
    if (std::fflush(stdout) != 0) return kTrouble;
    if (round == rounds || !pause(options.every, terminal)) return kFine;
    before = std::move(now);
  }
}

}  // namespace cmi::adm
