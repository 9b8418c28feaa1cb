// What the importing side says of itself to a process that asks over the bus. Runs on the service
// thread; takes each lock for a look at a list.
#include <algorithm>
#include <vector>

#include "core/memory/importer/importer.hpp"
#include "fabric/reach.hpp"

namespace cmi::memory {

namespace {
std::string place(const std::string& provider, Bytes listener) {
  return provider + " " + fabric::listener_text(listener);
}

std::string way_of(Import& imp) {
  if (imp.write_through) return "write-through";
  if (imp.views.local.local()) return "mapped";
  if (!imp.cache.ready()) return {};
  const char* const why = imp.views.local.why_cached();
  return why != nullptr ? std::string("cached: ") + why : "cached";
}

// Pages of one map that are looked at; of more, each second one, or third, and so on.
constexpr uint32_t kMostDrawn = 1 << 16;

// What one page is at present.
uint8_t marks_of(Page& page) {
  page.lock();
  const PageState state = page.state;
  page.unlock();
  if (state == PageState::kAbsent || state == PageState::kFetching || state == PageState::kStale)
    return 0;
  return state == PageState::kClean ? node::kMapHeld : node::kMapHeld | node::kMapDirty;
}

// The table has memory where a region has been used, and is not looked at elsewhere.
void draw_cached(Import& imp, node::MapLine* map) {
  std::vector<uint32_t> regions;
  for (uint32_t r = 0; r < regions_of(imp.pages); ++r) {
    if (imp.regions.known.in_use(r)) regions.push_back(r);
  }
  const auto step =
      static_cast<uint32_t>(1 + regions.size() * size_t{kRegionPages} / (kMostDrawn + 1));
  for (uint32_t r : regions) {
    const uint32_t end = std::min(imp.pages, (r + 1) * kRegionPages);
    for (uint32_t page = r * kRegionPages; page < end; page += step) {
      map->mark(page, 1, marks_of(imp.page(page)));
    }
  }
}
}  // namespace

void Importer::report(node::ContextReport* out) {
  for (const auto& imp : core_.imports.all()) {
    node::ImportLine& line = out->imports.emplace_back();
    line.id = imp->id;
    line.state = static_cast<uint8_t>(imp->grant.state());
    line.rights = imp->grant.rights();
    const uint64_t token = imp->grant.token_id();
    line.fingerprint = token != 0 ? node::token_fingerprint(token) : 0;
    line.home = imp->rseg.home;
    line.home_segment = imp->rseg.home_seg;
    line.cached = uint64_t{imp->cache.use.backed()} * kPageSize;
    line.limit = imp->cache.use.size();
    const SegmentStats& s = imp->stats;
    line.counters = {s.load_misses,        s.store_misses,         s.bytes_fetched,
                     s.bytes_written_back, s.publications,         s.invalidations_received,
                     s.exceptions,         s.invalidations_useless};
    line.dirty = imp->dirty.listed.size();
    imp->stats.pages.report(&line);
    line.way = way_of(*imp);
  }
  const Nanos t = now();
  const auto since = [&](Nanos then) { return then == 0 ? 0 : static_cast<uint64_t>(t - then); };
  for (const auto& link : core_.links.those_that([](fabric::Link&) { return true; })) {
    const fabric::Route& route = link->routes().current();
    out->links.push_back({link->home(), link->condemned(), since(link->health().heard()),
                          since(link->health().unreachable_since()),
                          static_cast<uint64_t>(link->health().took()),
                          place(route.fabric->traits().provider, route.home_listener)});
  }
}

void Importer::draw(const ContextId& home, int32_t segment, std::vector<node::MapLine>* out) {
  for (const auto& imp : core_.imports.all()) {
    if (imp->rseg.home != home || imp->rseg.home_seg != segment) continue;
    node::MapLine& map = out->emplace_back(false, imp->pages);
    if (imp->cache.ready()) draw_cached(*imp, &map);
    for (const PageRange& r : imp->flux.all()) {
      if (r.first >= imp->pages) continue;
      map.mark(r.first, std::min(r.count, imp->pages - r.first), node::kMapFlux);
    }
  }
}

}  // namespace cmi::memory
