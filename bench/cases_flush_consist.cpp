// A barrier that takes many pages of a client-consistent segment home. Its stores ask the home for
// nothing, so that pages can be made dirty within a tick of the timer also where a request takes
// long (flush_sparse cannot be measured there: the timer is always first).
#include <algorithm>

#include "cases.hpp"
#include "pattern.hpp"

namespace bench {

namespace {

constexpr size_t kPages = 1000;

double raw_once(const Raw& raw, size_t depth) {
  const double begun = now();
  raw.endpoint.write_many(raw.polling_peer, raw.polling, raw.buffer, 8, kPage, kPages, depth);
  return (now() - begun) / kMicro;
}

// In flight: what is fastest depends on the provider.
size_t best_depth(Bench& b) {
  const RawServing serving(b.control, RawMode::kPoll);
  raw_once(b.raw, kPages);  // first contact
  std::pair<double, size_t> best{1e300, 0};
  for (const size_t depth : {size_t{16}, size_t{64}, size_t{256}, kPages}) {
    std::vector<double> trials;
    for (size_t i = 0; i < b.scaled(9, 5); ++i) trials.push_back(raw_once(b.raw, depth));
    best = std::min(best, {spread_of(trials).median, depth});
  }
  return best.second;
}

}  // namespace

void flush_consist(Bench& b) {
  const Shared shared(b, kPages, 0, CMI_SEG_CLIENT_CONSIST);
  shared.load_all();
  const size_t depth = best_depth(b);
  uint64_t version = 0;
  Side ours{[&] {
              ++version;
              for (size_t p = 0; p < kPages; ++p) {
                store(shared.page(p), p, Pattern::kWord, version);
              }
              const uint64_t before = b.node.stats().pages_written_back;
              const double begun = now();
              barrier();
              const double took = (now() - begun) / kMicro;
              // Fewer: the timer had taken some of them before.
              return b.node.stats().pages_written_back - before == kPages ? took : -1;
            },
            [] {}, [&] { shared.check_home(kPages, static_cast<int>(Pattern::kWord), version); }};
  Side raw{[&] { return raw_once(b.raw, depth); }};
  ours.warm = raw.warm = 1;
  const Measured m = alternate(b, ours, raw, b.scaled(120, 20), 4);
  b.report.row({"flush_consist", "us", spread_of(m.ours), spread_of(m.raw),
                "1000 fi_writes of 8 B, " + std::to_string(depth) + " in flight, the best here",
                m.discarded});
}

}  // namespace bench
