// See report.hpp. Little-endian: version, number of counters, counters; then each list with its
// length in front.
#include "core/node/context_report.hpp"

namespace cmi::node {

namespace {

constexpr uint32_t kReportVersion = 6;

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

// Puts a list with its length in front, each item by the function.
template <class Item, class Put>
void put_list(Growing& out, const std::vector<Item>& list, Put&& put) {
  out.put(static_cast<uint32_t>(list.size()));
  for (const Item& item : list) put(out, item);
}

template <class Item, class Get>
void get_list(Reader& in, size_t item_bytes, std::vector<Item>* list, Get&& get) {
  for (uint32_t n = get_length(in, item_bytes); n > 0 && in.ok(); --n) {
    list->push_back(get(in));
  }
}

template <size_t n>
void put_all(Growing& out, const std::array<uint64_t, n>& values) {
  for (uint64_t v : values) out.put(v);
}
template <size_t n>
void get_all(Reader& in, std::array<uint64_t, n>* values) {
  for (uint64_t& v : *values) v = in.get<uint64_t>();
}

constexpr size_t kWriterBytes = 16 + 8 + sizeof(PageWriterLine::words);
constexpr size_t kPublishedPageBytes = 4 + 3 * 8 + 1 + 4;
constexpr size_t kPageCostBytes = 4 + 5 * 8;
constexpr size_t kTokenBytes = 25, kSharerBytes = 24, kLinkBytes = 43;
constexpr size_t kHomeBytes = 4 + 3 * 4 + 2 * 8;
constexpr size_t kImportBytes = 57 + 8 * kImportCounterNames.size() + 2 * 4;
constexpr size_t kMapBytes = 1 + 2 * 4 + 4;

void put_writer(Growing& out, const PageWriterLine& w) {
  out.put(w.by);
  out.put(w.publications);
  put_all(out, w.words);
}

PageWriterLine get_writer(Reader& in) {
  PageWriterLine w;
  w.by = get_id<ContextId>(in);
  w.publications = in.get<uint64_t>();
  get_all(in, &w.words);
  return w;
}

void put_page(Growing& out, const PublishedPageLine& p) {
  out.put(p.page);
  out.put(p.publications);
  out.put(p.notices);
  out.put(p.bounces);
  out.put<uint8_t>(p.more_writers ? 1 : 0);
  put_list(out, p.writers, put_writer);
}

PublishedPageLine get_page(Reader& in) {
  PublishedPageLine p;
  p.page = in.get<uint32_t>();
  p.publications = in.get<uint64_t>();
  p.notices = in.get<uint64_t>();
  p.bounces = in.get<uint64_t>();
  p.more_writers = in.get<uint8_t>() != 0;
  get_list(in, kWriterBytes, &p.writers, get_writer);
  return p;
}

void put_cost(Growing& out, const PageCostLine& l) {
  out.put(l.first);
  for (uint64_t n : {l.cost.load_misses, l.cost.store_misses, l.cost.first_stores, l.cost.notices,
                     l.cost.useless})
    out.put(n);
}

PageCostLine get_cost(Reader& in) {
  PageCostLine l;
  l.first = in.get<uint32_t>();
  for (uint64_t* n : {&l.cost.load_misses, &l.cost.store_misses, &l.cost.first_stores,
                      &l.cost.notices, &l.cost.useless})
    *n = in.get<uint64_t>();
  return l;
}

void put_home(Growing& out, const HomeLine& h) {
  out.put(h.id);
  put_list(out, h.tokens, [](Growing& to, const TokenLine& t) {
    to.put(t.fingerprint);
    to.put(t.rights);
    to.put(t.node);
    to.put<uint8_t>(t.revoked ? 1 : 0);
  });
  put_list(out, h.sharers, [](Growing& to, const SharerLine& l) {
    to.put(l.client);
    to.put(l.instance);
    to.put(l.rights);
  });
  out.put(h.publications);
  out.put(h.notifications);
  put_list(out, h.pages, put_page);
}

HomeLine get_home(Reader& in) {
  HomeLine h;
  h.id = in.get<int32_t>();
  get_list(in, kTokenBytes, &h.tokens, [](Reader& from) {
    TokenLine t;
    t.fingerprint = from.get<uint32_t>();
    t.rights = from.get<uint32_t>();
    t.node = get_id<NodeId>(from);
    t.revoked = from.get<uint8_t>() != 0;
    return t;
  });
  get_list(in, kSharerBytes, &h.sharers, [](Reader& from) {
    SharerLine l;
    l.client = get_id<ContextId>(from);
    l.instance = from.get<uint32_t>();
    l.rights = from.get<uint32_t>();
    return l;
  });
  h.publications = in.get<uint64_t>();
  h.notifications = in.get<uint64_t>();
  get_list(in, kPublishedPageBytes, &h.pages, get_page);
  return h;
}

void put_import(Growing& out, const ImportLine& i) {
  out.put(i.id);
  out.put(i.state);
  out.put(i.rights);
  out.put(i.fingerprint);
  out.put(i.home);
  out.put(i.home_segment);
  out.put(i.cached);
  out.put(i.limit);
  out.put(i.dirty);
  put_all(out, i.counters);
  put_list(out, i.pages, put_cost);
  put_list(out, i.regions, put_cost);
  out.put(i.way);
}

ImportLine get_import(Reader& in) {
  ImportLine i;
  i.id = in.get<int32_t>();
  i.state = in.get<uint8_t>();
  i.rights = in.get<uint32_t>();
  i.fingerprint = in.get<uint32_t>();
  i.home = get_id<ContextId>(in);
  i.home_segment = in.get<int32_t>();
  i.cached = in.get<uint64_t>();
  i.limit = in.get<uint64_t>();
  i.dirty = in.get<uint64_t>();
  get_all(in, &i.counters);
  get_list(in, kPageCostBytes, &i.pages, get_cost);
  get_list(in, kPageCostBytes, &i.regions, get_cost);
  i.way = get_text(in);
  return i;
}

void put_link(Growing& out, const LinkLine& l) {
  out.put(l.home);
  out.put<uint8_t>(l.dead ? 1 : 0);
  out.put(l.silent);
  out.put(l.unreachable);
  out.put(l.took);
  out.put(l.way);
}

LinkLine get_link(Reader& in) {
  LinkLine l;
  l.home = get_id<ContextId>(in);
  l.dead = in.get<uint8_t>() != 0;
  l.silent = in.get<uint64_t>();
  l.unreachable = in.get<uint64_t>();
  l.took = in.get<uint64_t>();
  l.way = get_text(in);
  return l;
}

void put_map(Growing& out, const MapLine& m) {
  out.put<uint8_t>(m.at_home ? 1 : 0);
  out.put(m.pages);
  out.put(m.per_cell);
  put_list(out, m.cells, [](Growing& to, uint8_t cell) { to.put(cell); });
}

MapLine get_map(Reader& in) {
  MapLine m;
  m.at_home = in.get<uint8_t>() != 0;
  m.pages = in.get<uint32_t>();
  m.per_cell = in.get<uint32_t>();
  get_list(in, 1, &m.cells, [](Reader& from) { return from.get<uint8_t>(); });
  return m;
}

// Whether each cell stands for pages of the segment.
bool sound(const MapLine& m) {
  if (m.pages == 0) return m.cells.empty();
  return m.per_cell != 0 && m.cells.size() == m.pages / m.per_cell + (m.pages % m.per_cell != 0);
}

}  // namespace

std::vector<std::byte> encode_report(const ContextReport& report) {
  Growing out;
  out.put(kReportVersion);
  out.put(static_cast<uint32_t>(report.counters.size()));
  put_all(out, report.counters);
  for (const TimesLine& t : report.times) {
    out.put(t.sum);
    put_all(out, t.counts);
  }
  put_list(out, report.homes, put_home);
  put_list(out, report.imports, put_import);
  put_list(out, report.links, put_link);
  put_list(out, report.listeners, [](Growing& to, const std::string& text) { to.put(text); });
  put_list(out, report.maps, put_map);
  return out.take();
}

Result<ContextReport> decode_report(Bytes bytes) {
  Reader in(bytes);
  ContextReport report;
  if (in.get<uint32_t>() != kReportVersion || in.get<uint32_t>() != report.counters.size()) {
    return Status::kInval;
  }
  get_all(in, &report.counters);
  for (TimesLine& t : report.times) {
    t.sum = in.get<uint64_t>();
    get_all(in, &t.counts);
  }
  get_list(in, kHomeBytes, &report.homes, get_home);
  get_list(in, kImportBytes, &report.imports, get_import);
  get_list(in, kLinkBytes, &report.links, get_link);
  get_list(in, 2, &report.listeners, get_text);
  get_list(in, kMapBytes, &report.maps, get_map);
  if (!in.done()) return Status::kInval;
  for (const MapLine& m : report.maps) {
    if (!sound(m)) return Status::kInval;
  }
  return report;
}

}  // namespace cmi::node
