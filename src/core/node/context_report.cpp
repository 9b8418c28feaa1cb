// See report.hpp. Little-endian: version, number of counters, counters; then each list with its
// length in front.
#include "core/node/context_report.hpp"

namespace cmi::node {

namespace {

constexpr uint32_t kReportVersion = 4;

class Growing {
 public:
  template <class T>
  requires std::is_integral_v<T>
  void put(T v) {
    const auto* p = reinterpret_cast<const std::byte*>(&v);
    bytes_.insert(bytes_.end(), p, p + sizeof v);
  }
  template <class Tag>
  void put(const Id128<Tag>& id) {
    put(id.hi);
    put(id.lo);
  }
  void put(const std::string& text) {  // at most 65535 bytes
    put(static_cast<uint16_t>(text.size()));
    const auto* p = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), p, p + text.size());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

template <class Id>
Id get_id(Reader& in) {
  Id id;
  id.hi = in.get<uint64_t>();
  id.lo = in.get<uint64_t>();
  return id;
}

std::string get_text(Reader& in) {
  const Bytes b = in.blob();
  return {reinterpret_cast<const char*>(b.data()), b.size()};
}

// The length of a list whose items take at least so many bytes: one that cannot be there turns the
// reader bad instead of asking for memory.
uint32_t get_length(Reader& in, size_t item_bytes) {
  const auto n = in.get<uint32_t>();
  if (n <= in.left() / item_bytes) return n;
  (void)in.bytes(in.left() + 1);
  return 0;
}

}  // namespace

std::vector<std::byte> encode_report(const ContextReport& report) {
  Growing out;
  out.put(kReportVersion);
  out.put(static_cast<uint32_t>(report.counters.size()));
  for (uint64_t c : report.counters) out.put(c);
  out.put(static_cast<uint32_t>(report.homes.size()));
  for (const HomeLine& h : report.homes) {
    out.put(h.id);
    out.put(static_cast<uint32_t>(h.tokens.size()));
    for (const TokenLine& t : h.tokens) {
      out.put(t.fingerprint);
      out.put(t.rights);
      out.put(t.node);
      out.put<uint8_t>(t.revoked ? 1 : 0);
    }
    out.put(static_cast<uint32_t>(h.sharers.size()));
    for (const SharerLine& l : h.sharers) {
      out.put(l.client);
      out.put(l.instance);
      out.put(l.rights);
    }
    out.put(h.publications);
    out.put(h.notifications);
  }
  out.put(static_cast<uint32_t>(report.imports.size()));
  for (const ImportLine& i : report.imports) {
    out.put(i.id);
    out.put(i.state);
    out.put(i.rights);
    out.put(i.fingerprint);
    out.put(i.home);
    out.put(i.cached);
    out.put(i.limit);
    out.put(i.dirty);
    for (uint64_t c : i.counters) out.put(c);
  }
  out.put(static_cast<uint32_t>(report.links.size()));
  for (const LinkLine& l : report.links) {
    out.put(l.home);
    out.put<uint8_t>(l.dead ? 1 : 0);
    out.put(l.silent);
    out.put(l.unreachable);
    out.put(l.took);
    out.put(l.way);
  }
  out.put(static_cast<uint32_t>(report.listeners.size()));
  for (const std::string& listener : report.listeners) out.put(listener);
  return out.take();
}

Result<ContextReport> decode_report(Bytes bytes) {
  Reader in(bytes);
  ContextReport report;
  if (in.get<uint32_t>() != kReportVersion || in.get<uint32_t>() != report.counters.size()) {
    return Status::kInval;
  }
  for (uint64_t& c : report.counters) c = in.get<uint64_t>();
  for (uint32_t n = get_length(in, 28); n > 0 && in.ok(); --n) {
    HomeLine& h = report.homes.emplace_back();
    h.id = in.get<int32_t>();
    for (uint32_t m = get_length(in, 25); m > 0 && in.ok(); --m) {
      TokenLine& t = h.tokens.emplace_back();
      t.fingerprint = in.get<uint32_t>();
      t.rights = in.get<uint32_t>();
      t.node = get_id<NodeId>(in);
      t.revoked = in.get<uint8_t>() != 0;
    }
    for (uint32_t m = get_length(in, 24); m > 0 && in.ok(); --m) {
      SharerLine& l = h.sharers.emplace_back();
      l.client = get_id<ContextId>(in);
      l.instance = in.get<uint32_t>();
      l.rights = in.get<uint32_t>();
    }
    h.publications = in.get<uint64_t>();
    h.notifications = in.get<uint64_t>();
  }
  for (uint32_t n = get_length(in, 53 + 8 * kImportCounterNames.size()); n > 0 && in.ok(); --n) {
    ImportLine& i = report.imports.emplace_back();
    i.id = in.get<int32_t>();
    i.state = in.get<uint8_t>();
    i.rights = in.get<uint32_t>();
    i.fingerprint = in.get<uint32_t>();
    i.home = get_id<ContextId>(in);
    i.cached = in.get<uint64_t>();
    i.limit = in.get<uint64_t>();
    i.dirty = in.get<uint64_t>();
    for (uint64_t& c : i.counters) c = in.get<uint64_t>();
  }
  for (uint32_t n = get_length(in, 43); n > 0 && in.ok(); --n) {
    LinkLine& l = report.links.emplace_back();
    l.home = get_id<ContextId>(in);
    l.dead = in.get<uint8_t>() != 0;
    l.silent = in.get<uint64_t>();
    l.unreachable = in.get<uint64_t>();
    l.took = in.get<uint64_t>();
    l.way = get_text(in);
  }
  for (uint32_t n = get_length(in, 2); n > 0 && in.ok(); --n)
    report.listeners.push_back(get_text(in));
  if (!in.done()) return Status::kInval;
  return report;
}

}  // namespace cmi::node
