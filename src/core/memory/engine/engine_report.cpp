// The report of a context, which other processes ask for over the bus. Runs on the service thread;
// takes each lock for a look at a list.
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

void Engine::answer(const node::Bus::Datagram& question) {
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
                       s.publications_received,
                       s.invalidations_useless,
                       s.intents_asked,
                       s.swaps_with_page,
                       s.requests_held_back,
                       s.twins_short};
    const Histogram* const times[] = {&s.miss_times, &s.barrier_times, &s.swap_times};
    for (size_t i = 0; i < report.times.size(); ++i)
      report.times[i] = {times[i]->sum(), times[i]->counts()};
    for (const auto& listener : listeners())
      report.listeners.push_back(place(listener.provider, listener.blob));
    home_->report(&report);
    importer_->report(&report);
    if (const auto map = node::map_asked(question.fd.get())) {
      if (map->at_home) home_->draw(map->segment, &report.maps);
      if (!map->at_home) importer_->draw(map->home, map->segment, &report.maps);
    }
    node::answer(question.fd.get(), report);
  } catch (const std::bad_alloc&) {
    trace(kFacCtrl, kWarn, "no memory to answer who asked for a report");
  }
}

}  // namespace cmi::memory
