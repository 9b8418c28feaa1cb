// cmiadm list: contexts, segments and who has them attached.
#include <nlohmann/json.hpp>

#include "ask.hpp"
#include "command.hpp"
#include "peers.hpp"
#include "text.hpp"

namespace cmi::adm {

namespace {

const char* kind_name(const SegmentRow& s) {
  return s.kind == node::SegmentKind::kHome ? "home" : "import";
}

std::string pid_text(pid_t pid) { return pid > 0 ? std::to_string(pid) : "?"; }

std::string program_text(const ContextRow& c) {
  if (!c.program.empty()) return c.program;
  if (c.pid == 0 && c.own_pid != 0) return fmt::format("{} of another pid namespace", c.own_pid);
  return "-";
}

// For people: the digits beside the name.
std::string title(const NodeRow& node) {
  return node.cmi_node.empty() ? node.name
                               : fmt::format("{} ({})", printable(node.cmi_node), node.name);
}

// Which contexts have it attached, as "PID" or "PIDxVIEWS".
std::string attached_by(const NodeRow& node, const SegmentRow& s) {
  std::string out;
  for (const ContextRow& c : node.contexts) {
    const uint32_t n = s.views_of[c.slot];
    if (n == 0) continue;
    if (!out.empty()) out += ' ';
    out += pid_text(c.pid);
    if (n > 1) out += "x" + std::to_string(n);
  }
  return out.empty() ? "-" : out;
}

std::string node_text(const NodeId& node) { return node ? hex16(node.hi) : "any"; }

void print_tokens(const NodeRow& node, const Reports& reports) {
  Table tokens({"TOKEN", "SEGMENT", "RIGHTS", "FOR NODE", "STATE", "IMPORTS"});
  for (const SegmentRow& s : node.segments) {
    const node::HomeLine* home = report_of(reports, s);
    if (home == nullptr) continue;
    for (const node::TokenLine& t : home->tokens) {
      tokens.row({fingerprint(t.fingerprint), std::to_string(s.id), rights_text(t.rights),
                  node_text(t.node), t.revoked ? "revoked" : "in force",
                  std::to_string(home->sharers.size())});
    }
  }
  if (tokens.empty()) return;
  fmt::print("\n");
  tokens.print(2);
}

// Calls `with` for each context's own line of an import.
template <class With>
void each_import(const NodeRow& node, const Reports& reports, With with) {
  for (const ContextRow& c : node.contexts) {
    const auto at = reports.by_slot.find(c.slot);
    if (at == reports.by_slot.end()) continue;
    for (const node::ImportLine& i : at->second.imports) {
      if (!i.way.empty()) with(c, i);
    }
  }
}

void print_ways(const NodeRow& node, const Reports& reports) {
  Table ways({"IMPORT", "PID", "PAGES"});
  each_import(node, reports, [&](const ContextRow& c, const node::ImportLine& i) {
    ways.row({std::to_string(i.id), pid_text(c.pid), i.way});
  });
  if (ways.empty()) return;
  fmt::print("\n");
  ways.print(2);
}

void print_reservations(const NodeRow& node) {
  Table table({"RESERVATION", "SIZE", "IN USE", "MADE BY"});
  for (const ReservationRow& r : node.reservations) {
    table.row({hex16(r.key), human_bytes(r.size), human_bytes(r.used), pid_text(r.maker_pid)});
  }
  if (table.empty()) return;
  fmt::print("\n");
  table.print(2);
}

void print_node(const NodeRow& node, const Reports& reports) {
  fmt::print("node {}\n", title(node));
  if (!node.trouble.empty()) {
    fmt::print("  nothing is known: {}\n", node.trouble);
    return;
  }
  Table contexts({"CONTEXT", "PID", "STATE", "PROGRAM", "SEGMENTS", "IMPORTS", "VIEWS"});
  for (const ContextRow& c : node.contexts) {
    contexts.row({std::to_string(c.slot), pid_text(c.pid), c.state(), program_text(c),
                  std::to_string(c.segments), std::to_string(c.imports), std::to_string(c.views)});
  }
  if (!contexts.empty()) contexts.print(2);
  Table segments({"SEGMENT", "KIND", "SIZE", "STATE", "SHARED", "OWNER", "ATTACHED BY"});
  for (const SegmentRow& s : node.segments) {
    const char* shared = s.kind == node::SegmentKind::kHome
                             ? (s.exported() ? "exported" : "-")
                             : (s.token_set() ? "token" : "no token");
    segments.row({std::to_string(s.id), kind_name(s), human_bytes(s.size), s.state_name(), shared,
                  pid_text(s.owner_pid), attached_by(node, s)});
  }
  if (!segments.empty()) {
    fmt::print("\n");
    segments.print(2);
  }
  print_tokens(node, reports);
  print_ways(node, reports);
  print_reservations(node);
}

void notes(const NodeRow& node, const Reports& reports) {
  if (!node.trouble.empty()) return;
  const std::string where = "node " + title(node);
  for (pid_t pid : reports.silent) {
    complain("{}: process {} does not answer: its tokens are not known", where, pid);
  }
  for (const SegmentRow& s : node.segments) {
    if (!s.trouble.empty()) complain("{}: segment {}: {}", where, s.id, s.trouble);
  }
  if (node.damaged > 0) {
    complain("{}: {}; \"cmiadm reap\" repairs what is damaged", where,
             counted(node.damaged, "damaged slot"));
  }
  if (node.dead() > 0) {
    complain("{}: {}; \"cmiadm reap\" cleans up, and so does the next cmi_ini() on the node", where,
             counted(node.dead(), "dead context"));
  }
  if (node.locked) {
    complain(
        "{}: the registry stays locked; a stopped process may hold the lock: resume it "
        "(kill -CONT PID) or end it",
        where);
  }
  if (!node.settled) complain("{}: it changed all the time while it was read", where);
}

// The list of what `make` says of each.
template <class Rows, class Make>
Json list_of(const Rows& rows, Make make) {
  Json list = Json::array();
  for (const auto& row : rows) list.push_back(make(row));
  return list;
}

Json json_of(const ReservationRow& r) {
  return {{"key", hex16(r.key)}, {"size", r.size}, {"used", r.used}, {"maker", r.maker_pid}};
}

Json json_of(const ContextRow& c) {
  return {{"slot", c.slot},         {"id", hex32(c.id)},    {"pid", c.pid},
          {"own_pid", c.own_pid},   {"state", c.state()},   {"program", c.program},
          {"segments", c.segments}, {"imports", c.imports}, {"views", c.views}};
}

Json json_of(const node::TokenLine& t) {
  return {{"fingerprint", fingerprint(t.fingerprint)},
          {"rights", rights_text(t.rights)},
          {"node", node_text(t.node)},
          {"revoked", t.revoked}};
}

Json json_of(const node::SharerLine& h) {
  return {{"context", hex32(h.client)}, {"rights", rights_text(h.rights)}};
}

Json json_of(const NodeRow& node, const SegmentRow& s, const Reports& reports) {
  const node::HomeLine* const home = report_of(reports, s);
  const auto each = [](const auto& row) { return json_of(row); };
  Json views = Json::array();
  for (const ContextRow& c : node.contexts) {
    const uint32_t n = s.views_of[c.slot];
    if (n != 0) views.push_back({{"pid", c.pid}, {"views", n}});
  }
  Json ways = Json::array();
  each_import(node, reports, [&](const ContextRow& c, const node::ImportLine& i) {
    if (i.id == s.id) ways.push_back({{"pid", c.pid}, {"way", i.way}});
  });
  return {{"id", s.id},
          {"kind", kind_name(s)},
          {"size", s.size},
          {"break", s.brk},
          {"charged", s.charged},
          {"state", s.state_name()},
          {"flags", flags_text(s.flags)},
          {"exported", s.exported()},
          {"token_set", s.token_set()},
          {"owner", s.owner_pid},
          {"owner_alive", s.owner_alive},
          {"views", std::move(views)},
          {"ways", std::move(ways)},
          {"tokens", home != nullptr ? list_of(home->tokens, each) : Json()},
          {"importers", home != nullptr ? list_of(home->sharers, each) : Json()},
          {"trouble", text_or_null(s.trouble)}};
}

Json json_of(const NodeRow& node, const Reports& reports) {
  const auto each = [](const auto& row) { return json_of(row); };
  return {{"node", node.name},
          {"name", text_or_null(node.cmi_node)},
          {"trouble", text_or_null(node.trouble)},
          {"settled", node.settled},
          {"locked", node.locked},
          {"damaged", node.damaged},
          {"stale_views", node.stale},
          {"reservations", list_of(node.reservations, each)},
          {"contexts", list_of(node.contexts, each)},
          {"segments",
           list_of(node.segments, [&](const SegmentRow& s) { return json_of(node, s, reports); })}};
}

void print_json(const Survey& survey, const std::vector<Reports>& reports) {
  Json nodes = Json::array();
  for (size_t i = 0; i < survey.nodes.size(); ++i) {
    nodes.push_back(json_of(survey.nodes[i], reports[i]));
  }
  print_line(Json{{"runtime_dir", survey.runtime_dir}, {"nodes", std::move(nodes)}});
}

}  // namespace

void complain_about(const Survey& s) {
  if (!s.trouble.empty()) {
    complain(
        "{}: {}; run cmiadm as the user whose processes these are, or name the folder with "
        "--runtime-dir",
        printable(s.runtime_dir), s.trouble);
  }
  for (const NodeRow& node : s.nodes) {
    if (!node.trouble.empty()) complain("node {}: {}", title(node), node.trouble);
  }
}

int list(const Options& options) {
  const Survey s = options.look();
  if (options.ids) {
    for (const NodeRow& node : s.nodes) {
      for (const SegmentRow& g : node.segments) fmt::print("{}\n", g.id);
    }
    return s.trouble.empty() ? kFine : kTrouble;
  }
  std::vector<Reports> reports;
  for (const NodeRow& node : s.nodes) {
    reports.push_back(ask_contexts(options.runtime_dir, node, options.wait));
  }
  if (options.json) {
    print_json(s, reports);
  } else {
    for (size_t i = 0; i < s.nodes.size(); ++i) {
      if (i > 0) fmt::print("\n");
      print_node(s.nodes[i], reports[i]);
    }
    if (s.nodes.empty() && s.trouble.empty()) {
      fmt::print("no node in {}\n", printable(s.runtime_dir));
    }
    std::fflush(stdout);
    for (size_t i = 0; i < s.nodes.size(); ++i) notes(s.nodes[i], reports[i]);
  }
  complain_about(s);
  bool trouble = !s.trouble.empty();
  for (const NodeRow& node : s.nodes) trouble = trouble || !node.trouble.empty();
  return trouble ? kTrouble : kFine;
}

}  // namespace cmi::adm
