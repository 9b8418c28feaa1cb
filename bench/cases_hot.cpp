// Pages that are stored to again and again.
#include <algorithm>
#include <tuple>

#include "cases.hpp"
#include "pattern.hpp"
#include "worker.hpp"

namespace bench {

namespace {
[[gnu::noinline]] void fill_words(std::byte* at, size_t size, uint64_t value) {
  auto* words = reinterpret_cast<volatile uint64_t*>(at);
  for (size_t i = 0; i < size / 8; ++i) words[i] = value;
}
}  // namespace

// A whole import is rewritten in order, again and again, without a barrier: the timer alone takes
// it home. A sample is one MiB or more of stores, as long as the import.
void hot_store(Bench& b) {
  constexpr int kWarm = 8;  // passes until every page has been written back and stored to again
  for (const auto& [mib, flags, row] : {std::tuple{1, CMI_SEG_CLIENT_INCONSIST, "hot_store_1M"},
                                        {16, CMI_SEG_CLIENT_INCONSIST, "hot_store_16M"},
                                        {64, CMI_SEG_CLIENT_INCONSIST, "hot_store_64M"},
                                        {1, CMI_SEG_CLIENT_CONSIST, "hot_store_1M_consist"},
                                        {16, CMI_SEG_CLIENT_CONSIST, "hot_store_16M_consist"},
                                        {64, CMI_SEG_CLIENT_CONSIST, "hot_store_64M_consist"}}) {
    const size_t size = static_cast<size_t>(mib) << 20, pages = size / kPage;
    Shared shared(b, pages, 0, flags);
    const PlainMemory plain(size);
    shared.load_all();
    uint64_t value = 0;
    const auto timed = [&, words = static_cast<double>(size / 8)](std::byte* at) {
      const double begun = now();
      fill_words(at, size, ++value);
      return (now() - begun) / words;
    };
    for (int i = 0; i < kWarm; ++i) {
      (void)timed(shared.page(0));
      barrier();
    }
    const uint64_t before = b.node.stats().pages_written_back;
    const size_t samples = std::max<size_t>(b.scaled(2048, 256) / static_cast<size_t>(mib), 12);
    const Measured m =
        alternate(b, {[&] { return timed(shared.page(0)); }}, {[&] { return timed(plain.at); }},
                  samples, std::max<size_t>(samples / 8, 4), RawMode::kOff);
    must(b.node.stats().pages_written_back > before, "the timer took nothing home");
    for (size_t p = 0; p < pages; ++p) word(shared.page(p), 1) = stamp(p, 1);
    barrier();
    shared.check_home(pages, static_cast<int>(Pattern::kWord), 1);
    b.report.row({row, "ns", spread_of(m.ours), spread_of(m.raw),
                  "ordinary memory, 8-byte stores in order", m.discarded});
  }
}

// The same of 16 MiB while another importer loads a word of it each millisecond, of a page by
// chance. The home notifies that importer of what the timer publishes.
void hot_store_read(Bench& b) {
  constexpr size_t kSize = size_t{16} << 20, kPages = kSize / kPage;
  constexpr int kWarm = 8;
  Shared shared(b, kPages, 1);
  const PlainMemory plain(kSize);
  shared.load_all();
  uint64_t value = 1;  // words of pages hold 0 at first
  for (size_t p = 0; p < kPages; ++p) must(word(shared.page(p), 1) == 0, "a page is not as made");
  const auto timed = [&](std::byte* at) {
    const double begun = now();
    fill_words(at, kSize, ++value);
    return (now() - begun) / (kSize / 8.0);
  };
  Answer loaded{0, 0};
  const auto begin = [&] {
    b.control.stop_spinning.store(0);
    ask(b.control, kOther1, Command::kSample, kPages);
  };
  const auto end = [&] {
    b.control.stop_spinning.store(1);
    const Answer a = await(b.control, kOther1);
    loaded.first += a.first;
    loaded.second += a.second;
  };
  for (int i = 0; i < kWarm; ++i) {
    (void)timed(shared.page(0));
    barrier();
  }
  const uint64_t before = b.node.stats().pages_written_back;
  const size_t samples = b.scaled(192, 24);
  // The other importer is at work beside ordinary memory as well: it takes a CPU's time, too.
  const Measured m =
      alternate(b, {[&] { return timed(shared.page(0)); }, begin, end},
                {[&] { return timed(plain.at); }, begin, end}, samples, 12, RawMode::kOff);
  must(b.node.stats().pages_written_back > before, "the timer took nothing home");
  must(loaded.second > 0, "the other importer never loaded anything new");
  for (size_t p = 0; p < kPages; ++p) word(shared.page(p), 1) = stamp(p, 1);
  barrier();
  shared.check_home(kPages, static_cast<int>(Pattern::kWord), 1);
  b.report.row({"hot_store_16M_read", "ns", spread_of(m.ours), spread_of(m.raw),
                "ordinary memory, 8-byte stores in order; " + std::to_string(loaded.first) +
                    " loads elsewhere, " + std::to_string(loaded.second) + " of them of new values",
                m.discarded});
}

// The same page is stored to and published, and both are timed.
void publish_hot(Bench& b) {
  Shared shared(b, 16);
  shared.load_all();
  uint64_t version = 0;
  Side ours{[&] {
    const uint64_t faults = b.node.stats().store_faults;
    const double begun = now();
    word(shared.page(0), 1) = stamp(0, ++version);
    barrier();
    const double took = now() - begun;
    return b.node.stats().store_faults == faults ? took / kMicro : -1;
  }};
  Side raw{[&] {
    const double begun = now();
    b.raw.endpoint.ping(b.raw.polling_peer);
    return (now() - begun) / kMicro;
  }};
  const Measured m = alternate(b, ours, raw, b.scaled(8000, 1500), 32, RawMode::kPoll);
  shared.check_home(1, static_cast<int>(Pattern::kWord), version);
  b.report.row({"publish_hot_1", "us", spread_of(m.ours), spread_of(m.raw),
                "a ping-pong; a store to a page that stays writable, and its barrier",
                m.discarded});
}

}  // namespace bench
