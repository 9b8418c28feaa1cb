// What the importing side says of itself to a process that asks over the bus. Runs on the service
// thread; takes each lock for a look at a list.
#include "core/memory/importer/importer.hpp"
#include "fabric/reach.hpp"

namespace cmi::memory {

namespace {
std::string place(const std::string& provider, Bytes listener) {
  return provider + " " + fabric::listener_text(listener);
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
    line.cached = uint64_t{imp->cache.use.backed()} * kPageSize;
    line.limit = imp->cache.use.size();
    const SegmentStats& s = imp->stats;
    line.counters = {s.load_misses,        s.store_misses,         s.bytes_fetched,
                     s.bytes_written_back, s.publications,         s.invalidations_received,
                     s.exceptions,         s.invalidations_useless};
    line.dirty = imp->dirty.listed.size();
  }
  const Nanos t = now();
  const auto since = [&](Nanos then) { return then == 0 ? 0 : static_cast<uint64_t>(t - then); };
  for (const auto& link : core_.links.those_that([](fabric::Link&) { return true; })) {
    const fabric::Route& route = link->route();
    out->links.push_back({link->home(), link->condemned(), since(link->heard()),
                          since(link->unreachable_since()), static_cast<uint64_t>(link->took()),
                          place(route.fabric->traits().provider, route.home_listener)});
  }
}

}  // namespace cmi::memory
