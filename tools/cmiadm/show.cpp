// cmiadm show: everything known of one segment, or of one process's context.
#include <fcntl.h>

#include <charconv>

#include "command.hpp"
#include "core/access/handles.hpp"
#include "core/node/proxy_file.hpp"
#include "peers.hpp"
#include "text.hpp"

namespace cmi::adm {

namespace {

// A list of names with values, printed as lines or as one JSON object.
class Facts {
 public:
  void add(std::string name, std::string value) {
    facts_.emplace_back(std::move(name), std::move(value));
  }
  void print() const {
    for (const auto& [name, value] : facts_) {
      std::printf("%-14s %s\n", name.c_str(), printable(value).c_str());
    }
  }
  void put(Json& json) const {
    json.open('{');
    for (const auto& [name, value] : facts_) json.field(name, value);
    json.close();
  }

 private:
  std::vector<std::pair<std::string, std::string>> facts_;
};

std::string context_text(const ContextRow& c) {
  return fmt::format("pid {} ({}, {})", c.pid, c.program.empty() ? "unknown program" : c.program,
                     c.state());
}

void add_views(Facts& facts, const NodeRow& node, const SegmentRow& s) {
  facts.add("views", std::to_string(s.views));
  for (const ContextRow& c : node.contexts) {
    if (s.views_of[c.slot] == 0) continue;
    facts.add("attached by", fmt::format("{}: {}", context_text(c), s.views_of[c.slot]));
  }
}

// What the importer left for the other processes of the node: the handle and the token.
void add_import(Facts& facts, const std::string& runtime_dir, const NodeRow& node,
                const SegmentRow& s) {
  const Result<node::Folder> folder = open_node(runtime_dir, node);
  if (!folder) return facts.add("trouble", "its folder has gone");
  const Result<Fd> file = open_file(*folder, node::segment_file_name(s.id).text, O_RDONLY);
  if (!file) return facts.add("trouble", "its file is missing");
  const auto blob = node::read_proxy_blob(file->get());
  if (!blob || blob->size() < access::kRsegSize) {
    return facts.add("trouble", "its file is damaged");
  }
  const auto rseg = access::decode_rseg(blob->data());
  if (!rseg) return facts.add("trouble", "the handle in its file is damaged");
  facts.add("handle", hex16(rseg->uid));
  facts.add("home node", hex16(rseg->home_node.hi));
  facts.add("home context", hex32(rseg->home));
  facts.add("home segment", std::to_string(rseg->home_seg));
  for (const access::FabricAddress& door : rseg->doors) {
    facts.add("home door", fmt::format("{} {}", door.provider, door_text(door.blob)));
  }
  uint64_t version = 0;
  const auto token = node::read_proxy_token(file->get(), &version);
  if (!token || version == 0 || token->size() < access::kTokenSize) {
    return facts.add("token", "none set");
  }
  const auto t = access::decode_token(token->data());
  if (!t) return facts.add("trouble", "the token in its file is damaged");
  facts.add("token", fmt::format("{} ({}), set {} time{}", fingerprint(t->id),
                                 rights_text(t->rights), version, version == 1 ? "" : "s"));
}

Facts facts_of(const Options& options, const NodeRow& node, const SegmentRow& s) {
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
  if (home) facts.add("exported", s.exported() ? "yes" : "no");
  if (!home) add_import(facts, options.runtime_dir, node, s);
  add_views(facts, node, s);
  if (!s.trouble.empty()) facts.add("trouble", s.trouble);
  return facts;
}

Facts facts_of(const NodeRow& node, const ContextRow& c) {
  Facts facts;
  facts.add("context", std::to_string(c.slot));
  facts.add("node", node.name);
  facts.add("id", hex32(c.id));
  facts.add("pid", std::to_string(c.pid));
  facts.add("program", c.program.empty() ? "unknown" : c.program);
  facts.add("state", c.state());
  for (const SegmentRow& s : node.segments) {
    if (s.owner != c.slot) continue;
    facts.add(s.kind == node::SegmentKind::kHome ? "made" : "imported",
              fmt::format("segment {}, {}, {}", s.id, human_bytes(s.size), s.state_name()));
  }
  for (const SegmentRow& s : node.segments) {
    if (s.views_of[c.slot] > 0) {
      facts.add("attached", fmt::format("segment {}: {} view{}", s.id, s.views_of[c.slot],
                                        s.views_of[c.slot] == 1 ? "" : "s"));
    }
  }
  return facts;
}

}  // namespace

int show(const Options& options) {
  const std::string& operand = options.operands[0];
  int32_t wanted = 0;
  const auto [end, error] =
      std::from_chars(operand.data(), operand.data() + operand.size(), wanted);
  if (error != std::errc{} || end != operand.data() + operand.size() || wanted <= 0) {
    complain("show: {} is neither a segment's id nor a process's; see \"cmiadm list\"",
             printable(operand));
    return kUsage;
  }
  const Survey survey = options.look();
  std::vector<Facts> found;
  for (const NodeRow& node : survey.nodes) {
    for (const SegmentRow& s : node.segments) {
      if (s.id == wanted) found.push_back(facts_of(options, node, s));
    }
  }
  for (const NodeRow& node : survey.nodes) {
    for (const ContextRow& c : node.contexts) {
      if (c.pid == wanted) found.push_back(facts_of(node, c));
    }
  }
  if (options.json) {
    Json json;
    json.open('[');
    for (const Facts& f : found) f.put(json);
    json.close();
    json.print();
  } else {
    for (size_t i = 0; i < found.size(); ++i) {
      if (i > 0) std::puts("");
      found[i].print();
    }
  }
  complain_about(survey);
  if (!found.empty()) return kFine;
  complain("no segment and no process {} in {}; \"cmiadm list\" shows what there is", wanted,
           printable(options.runtime_dir));
  return kTrouble;
}

}  // namespace cmi::adm
