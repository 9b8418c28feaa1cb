// cmiadm list: contexts, segments and who has them attached.
#include <cinttypes>

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
    const node::HomeLine* told = told_of(reports, s);
    if (told == nullptr) continue;
    for (const node::TokenLine& t : told->tokens) {
      tokens.row({fingerprint(t.fingerprint), std::to_string(s.id), rights_text(t.rights),
                  node_text(t.node), t.revoked ? "revoked" : "in force",
                  std::to_string(told->sharers.size())});
    }
  }
  if (tokens.empty()) return;
  std::puts("");
  tokens.print(2);
}

void print_reservations(const NodeRow& node) {
  Table table({"RESERVATION", "SIZE", "IN USE", "MADE BY"});
  for (const ReservationRow& r : node.reservations) {
    table.row({hex16(r.key), human_bytes(r.size), human_bytes(r.used), pid_text(r.maker_pid)});
  }
  if (table.empty()) return;
  std::puts("");
  table.print(2);
}

void put_reservations(Json& json, const NodeRow& node) {
  json.key("reservations").open('[');
  for (const ReservationRow& r : node.reservations) {
    json.open('{').field("key", hex16(r.key)).field("size", r.size).field("used", r.used);
    json.field("maker", static_cast<uint64_t>(r.maker_pid)).close();
  }
  json.close();
}

void print_node(const NodeRow& node, const Reports& reports) {
  std::printf("node %s\n", node.name.c_str());
  if (!node.trouble.empty()) {
    std::printf("  nothing is known: %s\n", node.trouble.c_str());
    return;
  }
  Table contexts({"CONTEXT", "PID", "STATE", "PROGRAM", "SEGMENTS", "IMPORTS", "VIEWS"});
  for (const ContextRow& c : node.contexts) {
    contexts.row({std::to_string(c.slot), pid_text(c.pid), c.state(),
                  c.program.empty() ? "-" : c.program, std::to_string(c.segments),
                  std::to_string(c.imports), std::to_string(c.views)});
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
    std::puts("");
    segments.print(2);
  }
  print_tokens(node, reports);
  print_reservations(node);
}

void notes(const NodeRow& node, const Reports& reports) {
  if (!node.trouble.empty()) return;
  const std::string where = "node " + node.name;
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

void put_context(Json& json, const ContextRow& c) {
  json.open('{').field("slot", uint64_t{c.slot}).field("id", hex32(c.id));
  json.field("pid", static_cast<uint64_t>(c.pid)).field("state", c.state());
  json.field("program", c.program).field("segments", uint64_t{c.segments});
  json.field("imports", uint64_t{c.imports}).field("views", uint64_t{c.views}).close();
}

void put_tokens(Json& json, const node::HomeLine* told) {
  json.key("tokens");
  if (told == nullptr) {
    json.null().key("importers").null();
    return;
  }
  json.open('[');
  for (const node::TokenLine& t : told->tokens) {
    json.open('{').field("fingerprint", fingerprint(t.fingerprint));
    json.field("rights", rights_text(t.rights)).field("node", node_text(t.node));
    json.field("revoked", t.revoked).close();
  }
  json.close().key("importers").open('[');
  for (const node::SharerLine& h : told->sharers) {
    json.open('{').field("context", hex32(h.client)).field("rights", rights_text(h.rights)).close();
  }
  json.close();
}

void put_segment(Json& json, const NodeRow& node, const SegmentRow& s, const node::HomeLine* told) {
  json.open('{').field("id", static_cast<uint64_t>(s.id)).field("kind", kind_name(s));
  json.field("size", s.size)
      .field("break", s.brk)
      .field("charged", s.charged)
      .field("state", s.state_name());
  json.field("flags", flags_text(s.flags)).field("exported", s.exported());
  json.field("token_set", s.token_set()).field("owner", static_cast<uint64_t>(s.owner_pid));
  json.field("owner_alive", s.owner_alive).key("views").open('[');
  for (const ContextRow& c : node.contexts) {
    if (s.views_of[c.slot] == 0) continue;
    json.open('{').field("pid", static_cast<uint64_t>(c.pid));
    json.field("views", uint64_t{s.views_of[c.slot]}).close();
  }
  json.close();
  put_tokens(json, told);
  json.key("trouble");
  s.trouble.empty() ? json.null() : json.value(s.trouble);
  json.close();
}

void print_json(const Survey& survey, const std::vector<Reports>& reports) {
  Json json;
  json.open('{').field("runtime_dir", survey.runtime_dir).key("nodes").open('[');
  for (size_t i = 0; i < survey.nodes.size(); ++i) {
    const NodeRow& node = survey.nodes[i];
    json.open('{').field("node", node.name).key("trouble");
    node.trouble.empty() ? json.null() : json.value(node.trouble);
    json.field("settled", node.settled).field("locked", node.locked);
    json.field("damaged", uint64_t{node.damaged}).field("stale_views", uint64_t{node.stale});
    put_reservations(json, node);
    json.key("contexts").open('[');
    for (const ContextRow& c : node.contexts) put_context(json, c);
    json.close().key("segments").open('[');
    for (const SegmentRow& s : node.segments) put_segment(json, node, s, told_of(reports[i], s));
    json.close().close();
  }
  json.close().close();
  json.print();
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
    if (!node.trouble.empty()) complain("node {}: {}", node.name, node.trouble);
  }
}

int list(const Options& options) {
  const Survey s = options.look();
  if (options.ids) {
    for (const NodeRow& node : s.nodes) {
      for (const SegmentRow& g : node.segments) std::printf("%" PRId32 "\n", g.id);
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
      if (i > 0) std::puts("");
      print_node(s.nodes[i], reports[i]);
    }
    if (s.nodes.empty() && s.trouble.empty()) {
      std::printf("no node in %s\n", printable(s.runtime_dir).c_str());
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
