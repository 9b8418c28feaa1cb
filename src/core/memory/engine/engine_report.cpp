// What a context says of itself to who asks over the bus. Runs on the service thread; takes each
// lock for a look at a list.
#include <new>

#include "core/base/log.hpp"
#include "core/memory/engine/engine.hpp"
#include "core/node/inquiry.hpp"
#include "fabric/reach.hpp"

namespace cmi::memory {

namespace {
std::string place(const std::string& provider, Bytes listener) {
  return provider + " " + fabric::listener_text(listener);
}
}  // namespace

void Home::report(node::ContextReport* out) {
  Guard g(mu_);
  for (const auto& [id, s] : segments_) {
    if (!s.owned) continue;
    node::HomeLine& line = out->homes.emplace_back();
    line.id = id;
    line.publications = s.publications;
    line.notifications = s.notifications;
    for (const auto& [name, t] : s.tokens) {
      line.tokens.push_back({node::token_fingerprint(name), t.info.rights, t.info.node, t.revoked});
    }
    for (const Sharer& h : s.sharers) line.sharers.push_back({h.client, h.instance, h.rights});
  }
}

void Importer::report(node::ContextReport* out) {
  for (const auto& imp : all_imports()) {
    node::ImportLine& line = out->imports.emplace_back();
    line.id = imp->id;
    line.state = static_cast<uint8_t>(imp->state.load(std::memory_order_relaxed));
    line.rights = imp->rights.load(std::memory_order_relaxed);
    const uint64_t token = imp->token_id.load(std::memory_order_relaxed);
    line.fingerprint = token != 0 ? node::token_fingerprint(token) : 0;
    line.home = imp->rseg.home;
    line.cached = uint64_t{imp->backed.load(std::memory_order_relaxed)} * kPageSize;
    line.limit = imp->cache_bytes.load(std::memory_order_relaxed);
    const SegmentStats& s = imp->stats;
    line.counters = {s.load_misses,        s.store_misses, s.bytes_fetched,
                     s.bytes_written_back, s.publications, s.invalidations_received,
                     s.exceptions};
    Guard g(imp->dirty_mu);
    line.dirty = imp->dirty.size();
  }
  const Nanos t = now();
  const auto since = [&](Nanos then) { return then == 0 ? 0 : static_cast<uint64_t>(t - then); };
  for (const auto& link : links_that([](fabric::Link&) { return true; })) {
    const fabric::Route& route = link->route();
    out->links.push_back({link->home(), link->condemned(), since(link->heard()),
                          since(link->unreachable_since()), static_cast<uint64_t>(link->took()),
                          place(route.fabric->traits().provider, route.home_listener)});
  }
}

void Engine::answer(const node::Node::Datagram& question) {
  SignalsBlocked quiet;
  try {
    node::ContextReport report;
    const Stats& s = stats_;
    report.counters = {s.load_misses,
                       s.store_misses,
                       s.store_faults,
                       s.pages_fetched,
                       s.bytes_fetched,
                       s.bytes_written_back,
                       s.pages_written_back,
                       s.publications,
                       s.invalidations_received,
                       s.cas_calls,
                       s.cas_lost,
                       s.exceptions,
                       messages_dropped(),
                       s.pages_evicted,
                       s.most_unanswered,
                       s.ticks,
                       s.pages_updated,
                       s.publications_received};
    for (const auto& listener : listeners())
      report.listeners.push_back(place(listener.provider, listener.blob));
    home_->report(&report);
    importer_->report(&report);
    node::answer(question.fd.get(), report);
  } catch (const std::bad_alloc&) {
    trace(kFacCtrl, kWarn, "no memory to answer who asked for a report");
  }
}

}  // namespace cmi::memory
