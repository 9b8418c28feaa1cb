// cmiadm show: everything known of one segment, or of one process's context.
#include <fcntl.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ask.hpp"
#include "command.hpp"
#include "core/access/handles.hpp"
#include "core/node/proxy_file.hpp"
#include "peers.hpp"
#include "text.hpp"

namespace cmi::adm {

namespace {

// Names with values, printed as lines or as one JSON object. What may come more than once is an
// item of a list, in JSON too when there is one alone.
class Facts {
 public:
  void add(std::string name, std::string value) {
    facts_.push_back({std::move(name), {std::move(value)}, false});
  }
  void add_item(const std::string& name, std::string value) {
    const auto at = std::find_if(facts_.begin(), facts_.end(),
                                 [&](const Fact& f) { return f.list && f.name == name; });
    if (at != facts_.end()) {
      at->values.push_back(std::move(value));
    } else {
      facts_.push_back({name, {std::move(value)}, true});
    }
  }
  void print() const {
    for (const Fact& f : facts_) {
      for (const std::string& value : f.values) {
        fmt::print("{:<22} {}\n", f.name, printable(value));
      }
    }
  }
  Json json() const {
    Json object = Json::object();
    for (const Fact& f : facts_) object[f.name] = f.list ? Json(f.values) : Json(f.values[0]);
    return object;
  }

 private:
  struct Fact {
    std::string name;
    std::vector<std::string> values;
    bool list;
  };
  std::vector<Fact> facts_;
};

std::string context_text(const ContextRow& c) {
  return fmt::format("pid {} ({}, {})", c.pid, c.program.empty() ? "unknown program" : c.program,
                     c.state());
}

void add_views(Facts& facts, const NodeRow& node, const SegmentRow& s) {
  facts.add("views", std::to_string(s.views));
  for (const ContextRow& c : node.contexts) {
    if (s.views_of[c.slot] == 0) continue;
    facts.add_item("attached by", fmt::format("{}: {}", context_text(c), s.views_of[c.slot]));
  }
}

// What the importer left for the other processes of the node: the handle and the token.
void add_import(Facts& facts, const std::string& runtime_dir, const NodeRow& node,
                const SegmentRow& s) {
  const Result<node::Folder> folder = open_node(runtime_dir, node);
  if (!folder) return facts.add_item("trouble", "its folder has gone");
  const Result<Fd> file = open_file(*folder, node::segment_file_name(s.id).text, O_RDONLY);
  if (!file) return facts.add_item("trouble", "its file is missing");
  const auto blob = node::read_proxy_blob(file->get());
  if (!blob || blob->size() < access::kRsegSize) {
    return facts.add_item("trouble", "its file is damaged");
  }
  const auto rseg = access::decode_rseg(blob->data());
  if (!rseg) return facts.add_item("trouble", "the handle in its file is damaged");
  facts.add("handle", hex16(rseg->uid));
  facts.add("home node", hex16(rseg->home_node.hi));
  facts.add("home context", hex32(rseg->home));
  facts.add("home segment", std::to_string(rseg->home_seg));
  for (const access::FabricAddress& listener : rseg->listeners) {
    facts.add_item("home listener",
                   fmt::format("{} {}", listener.provider, listener_text(listener.blob)));
  }
  uint64_t version = 0;
  const auto token = node::read_proxy_token(file->get(), &version);
  if (!token || version == 0 || token->size() < access::kTokenSize) {
    return facts.add("token", "none set");
  }
  const auto t = access::decode_token(token->data());
  if (!t) return facts.add_item("trouble", "the token in its file is damaged");
  facts.add("token", fmt::format("{} ({}), set {}", fingerprint(node::token_fingerprint(t->id)),
                                 rights_text(t->rights), counted(version, "time")));
}

// What the owner of a segment at home knows of its users.
void add_export(Facts& facts, const Reports& reports, const SegmentRow& s) {
  facts.add("exported", s.exported() ? "yes" : "no");
  const node::HomeLine* home = report_of(reports, s);
  if (home == nullptr)
    return facts.add("not known", "tokens and importers: its owner does not answer");
  for (const node::TokenLine& t : home->tokens) {
    facts.add_item(
        "tokens", fmt::format("{} ({}) for {}{}", fingerprint(t.fingerprint), rights_text(t.rights),
                              t.node ? "node " + hex16(t.node.hi) : "any node",
                              t.revoked ? ", revoked" : ""));
  }
  for (const node::SharerLine& h : home->sharers) {
    facts.add_item("imported by",
                   fmt::format("context {} ({})", hex32(h.client),
                               h.rights == 0 ? "no token presented" : rights_text(h.rights)));
  }
}

// How the contexts that have an import in use see it; each has a cache of its own, or maps the
// home's pages.
void add_caches(Facts& facts, const NodeRow& node, const Reports& reports, const SegmentRow& s) {
  for (const ContextRow& c : node.contexts) {
    const auto at = reports.by_slot.find(c.slot);
    if (at == reports.by_slot.end()) continue;
    for (const node::ImportLine& i : at->second.imports) {
      if (i.id != s.id) continue;
      facts.add_item("cache",
                     fmt::format("pid {}: {}, {} cached, {} pages with stores not home yet", c.pid,
                                 import_state_name(i.state), human_bytes(i.cached), i.dirty));
      if (!i.way.empty()) facts.add_item("pages", fmt::format("pid {}: {}", c.pid, i.way));
    }
  }
}

Facts facts_of(const Options& options, const NodeRow& node, const Reports& reports,
               const SegmentRow& s) {
  Facts facts;
  const bool home = s.kind == node::SegmentKind::kHome;
  facts.add("segment", std::to_string(s.id));
  facts.add("node", node.name);
  facts.add("kind", home ? "home" : "import");
  facts.add("state", s.state_name());
  facts.add("size", fmt::format("{} ({})", s.size, human_bytes(s.size)));
  facts.add("reserved", fmt::format("{} ({})", s.charged, human_bytes(s.charged)));
  facts.add("flags", flags_text(s.flags));
  const ContextRow* owner = s.owner_alive ? node.context(s.owner) : nullptr;
  facts.add("owner",
            owner != nullptr ? context_text(*owner) : fmt::format("pid {} (dead)", s.owner_pid));
  if (home) {
    add_export(facts, reports, s);
  } else {
    add_import(facts, options.runtime_dir, node, s);
    add_caches(facts, node, reports, s);
  }
  add_views(facts, node, s);
  if (!s.trouble.empty()) facts.add_item("trouble", s.trouble);
  return facts;
}

Facts facts_of(const NodeRow& node, const Reports& reports, const ContextRow& c) {
  Facts facts;
  facts.add("context", std::to_string(c.slot));
  facts.add("node", node.name);
  facts.add("id", hex32(c.id));
  facts.add("pid", std::to_string(c.pid));
  facts.add("program", c.program.empty() ? "unknown" : c.program);
  facts.add("state", c.state());
  for (const SegmentRow& s : node.segments) {
    if (s.owner != c.slot) continue;
    facts.add_item(s.kind == node::SegmentKind::kHome ? "made" : "imported",
                   fmt::format("segment {}, {}, {}", s.id, human_bytes(s.size), s.state_name()));
  }
  for (const SegmentRow& s : node.segments) {
    if (s.views_of[c.slot] > 0) {
      facts.add_item("attached",
                     fmt::format("segment {}: {}", s.id, counted(s.views_of[c.slot], "view")));
    }
  }
  const auto at = reports.by_slot.find(c.slot);
  if (at != reports.by_slot.end()) {
    for (const std::string& listener : at->second.listeners)
      facts.add_item("reached over", listener);
  }
  for (size_t i = 0; at != reports.by_slot.end() && i < at->second.counters.size(); ++i) {
    facts.add(node::kCounterNames[i], std::to_string(at->second.counters[i]));
  }
  return facts;
}

}  // namespace

int show(const Options& options) {
  const Survey survey = options.look();
  std::vector<Facts> found;
  for (const NodeRow& node : survey.nodes) {
    const Reports reports = ask_contexts(options.runtime_dir, node, options.wait);
    for (const SegmentRow& s : node.segments) {
      if (s.id == options.id) found.push_back(facts_of(options, node, reports, s));
    }
    for (const ContextRow& c : node.contexts) {
      if (c.pid == options.id) found.push_back(facts_of(node, reports, c));
    }
  }
  if (options.json) {
    Json all = Json::array();
    for (const Facts& f : found) all.push_back(f.json());
    print_line(all);
  } else {
    for (size_t i = 0; i < found.size(); ++i) {
      if (i > 0) fmt::print("\n");
      found[i].print();
    }
  }
  complain_about(survey);
  if (!found.empty()) return kFine;
  complain("no segment and no process {} in {}; \"cmiadm list\" shows what there is", options.id,
           printable(options.runtime_dir));
  return kTrouble;
}

}  // namespace cmi::adm
