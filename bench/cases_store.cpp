// Stores: to pages that are dirty, cached or absent, and at home.
#include <utility>

#include "cases.hpp"
#include "pattern.hpp"
#include "worker.hpp"

namespace bench {

namespace {
[[gnu::noinline]] void fill_words(std::byte* at, size_t size, uint64_t value) {
  auto* words = reinterpret_cast<volatile uint64_t*>(at);
  for (size_t i = 0; i < size / 8; ++i) words[i] = value;
}

// Stores, one sample each, to pages in random order. Between blocks a barrier takes them home.
struct FirstStores {
  Bench& bench;
  Shared shared;
  std::vector<uint32_t> order;
  size_t next = 0, stores = 0;
  uint64_t version = 1;

  FirstStores(Bench& b, size_t pages, int32_t flags, size_t stride = 1)
      : bench(b), shared(b, pages, 0, flags, stride), order(random_order(pages, 9)) {
    if (stride == 1) shared.load_all();
  }
  double once() {
    const uint32_t p = order[next++];
    std::byte* page = shared.page(p);
    const uint64_t value = stamp(p, version);
    const double begun = now();
    word(page, 1) = value;
    const double took = now() - begun;
    ++stores;
    return took / kMicro;
  }
  // At the end of a block: all home, and checked when each page had its turn.
  void settle(bool drop) {
    barrier();
    if (next + 128 <= order.size()) return;
    for (size_t i = 0; i < next; ++i) {
      shared.check_home(1, static_cast<int>(Pattern::kWord), version, order[i]);
    }
    if (drop) shared.renew();
    // Pages that were stored to twice stay writable, until they were found unchanged so often.
    for (int i = 0; i < 32 && !drop; ++i) barrier();
    next = 0;
    ++version;
  }
};

// As many pages in the same order by a bare handler that reads from the raw target, those behind
// raw's as in BareMisses; if `marked`, a program there has to hear of it, and answers with the
// page.
class BareStores {
 public:
  BareStores(const Raw& raw, const std::vector<uint32_t>& order, bool marked)
      : order_(order), marked_(marked), trap_(make_trap(order.size())) {
    if (trap_ == nullptr) return;
    trap_->set_fetch([this, &raw](size_t page, const Trap::Meanwhile& meanwhile) {
      std::byte* const to = trap_->content(page);
      const size_t from = (order_.size() + page) * kPage;
      if (marked_) {
        raw.fetching.fetch(raw.fetched_from, to, kPage, from, meanwhile);
      } else {
        raw.endpoint.read(raw.polling_peer, raw.polling, to, kPage, from, meanwhile);
      }
      ++fetched_;
    });
  }
  std::vector<FloorSide> side() {
    if (trap_ == nullptr) return {};
    return {trapped(
        *trap_, [this] { return once(); }, marked_ ? RawMode::kFetch : RawMode::kPoll)};
  }

 private:
  double once() {
    if (stores_ % order_.size() == 0) trap_->zap(0, trap_->pages());
    const uint32_t p = order_[stores_++ % order_.size()];
    const double begun = now();
    word(trap_->page(p), 1) = stores_;
    const double took = now() - begun;
    must(fetched_ == stores_ && word(trap_->page(p), 0) == stamp(order_.size() + p, 0),
         "a bare store did not fetch its page");
    return took / kMicro;
  }

  const std::vector<uint32_t>& order_;
  const bool marked_;
  std::unique_ptr<Trap> trap_;
  size_t stores_ = 0, fetched_ = 0;
};

// First stores to pages that are mapped and protected, by a bare handler; if `marked`, a raw write
// of 8 bytes comes before each.
class BareFirstStores {
 public:
  BareFirstStores(const Raw& raw, const std::vector<uint32_t>& order, bool marked)
      : order_(order), marked_(marked), trap_(make_trap(order.size())) {
    if (trap_ == nullptr) return;
    trap_->set_mark([this, &raw](size_t) {
      if (marked_) raw.endpoint.write(raw.polling_peer, raw.polling, raw.buffer, 8, 8);
      ++faults_;
    });
  }
  std::vector<FloorSide> side() {
    if (trap_ == nullptr) return {};
    return {trapped(*trap_, [this] { return once(); })};
  }

 private:
  double once() {
    if (stores_ % order_.size() == 0) {
      for (uint32_t p : order_) {
        if (stores_ == 0) {
          touch(trap_->page(p));
        } else {
          trap_->protect(p);
        }
      }
    }
    const uint32_t p = order_[stores_++ % order_.size()];
    const double begun = now();
    word(trap_->page(p), 1) = stores_;
    const double took = now() - begun;
    must(faults_ == stores_, "a bare store met no protected page");
    return took / kMicro;
  }

  const std::vector<uint32_t>& order_;
  const bool marked_;
  std::unique_ptr<Trap> trap_;
  size_t stores_ = 0, faults_ = 0;
};
}  // namespace

void store_hit(Bench& b) {
  // Stored to anew after each write-back: well within a tick. And well within the second cache,
  // into which a whole MiB may or may not fit, of either side.
  constexpr size_t kPages = 64;
  constexpr double kWords = kPages * kPage / 8;
  Shared shared(b, kPages);
  const PlainMemory plain(kPages * kPage);
  shared.load_all();
  uint64_t value = 0;
  const auto timed = [&](std::byte* at) {
    const double begun = now();
    fill_words(at, kPages * kPage, ++value);
    return (now() - begun) / kWords;
  };
  Side ours{[&] {
    // The timer writes dirty pages back and protects them; a pass with such a fault is none of
    // hits.
    const uint64_t faults = b.node.stats().store_faults;
    const double took = timed(shared.page(0));
    return b.node.stats().store_faults == faults ? took : -1.0;
  }};
  Side raw{[&] { return timed(plain.at); }};
  const Measured m = alternate(b, ours, raw, b.scaled(400, 80), 8, RawMode::kOff);
  for (size_t p = 0; p < kPages; ++p) word(shared.page(p), 1) = stamp(p, 1);
  barrier();
  shared.check_home(kPages, static_cast<int>(Pattern::kWord), 1);
  b.report.row({"store_hit", "ns", spread_of(m.ours), spread_of(m.raw),
                "an ordinary array, 8-byte stores in order", m.discarded});
}

void store_first_case(Bench& b) {
  for (const auto& [row, flags] : {std::pair{"store_first", CMI_SEG_CLIENT_CONSIST},
                                   {"store_first_inconsist", CMI_SEG_CLIENT_INCONSIST}}) {
    FirstStores first(b, 1024, flags);
    const auto before = b.node.stats();
    Side ours{[&] { return first.once(); }, [] {}, [&] { first.settle(false); }};
    Side raw{[&] {
      const double begun = now();
      b.raw.endpoint.write(b.raw.polling_peer, b.raw.polling, b.raw.buffer, 8, 8);
      return (now() - begun) / kMicro;
    }};
    BareFirstStores bare(b.raw, first.order, flags == CMI_SEG_CLIENT_INCONSIST);
    const Measured m =
        alternate(b, ours, raw, b.scaled(6000, 1000), 64, RawMode::kPoll, bare.side());
    const auto after = b.node.stats();
    must(after.store_faults - before.store_faults == first.stores &&
             after.store_misses == before.store_misses,
         std::to_string(first.stores) + " stores, but " +
             std::to_string(after.store_faults - before.store_faults) + " first ones");
    b.report.row({row, "us", spread_of(m.ours), spread_of(m.raw), "fi_write of 8 B", m.discarded,
                  floor_of(m)});
  }
}

namespace {
// Each page is stored to once, and neither side has had it before: memory for it, for its twin and
// for tables of pages and regions is taken for the first time.
void store_first_sparse(Bench& b) {
  const size_t pages = b.scaled(12288, 2048);  // one in each MiB
  constexpr size_t kBlock = 64, kWarm = 4;
  FirstStores sparse(b, pages, CMI_SEG_NORESERVE, (size_t{1} << 20) / kPage);
  const auto before = b.node.stats();
  size_t reads = 0;
  Side ours{[&] { return sparse.once(); }, [] {}, [] { barrier(); }, kWarm};
  Side raw{[&] {
    const size_t at = reads++ % (b.raw.size / kPage) * kPage;
    const double begun = now();
    b.raw.endpoint.read(b.raw.polling_peer, b.raw.polling, b.raw.buffer + at, kPage, at);
    return (now() - begun) / kMicro;
  }};
  const size_t blocks = pages / (kBlock + kWarm);
  const Measured m = alternate(b, ours, raw, blocks * kBlock, kBlock);
  const auto after = b.node.stats();
  must(after.store_misses - before.store_misses == sparse.stores,
       std::to_string(sparse.stores) + " stores, but " +
           std::to_string(after.store_misses - before.store_misses) + " misses");
  for (size_t i = 0; i < sparse.next; ++i) {
    sparse.shared.check_home(1, static_cast<int>(Pattern::kWord), sparse.version, sparse.order[i]);
  }
  b.report.row({"store_first_sparse", "us", spread_of(m.ours), spread_of(m.raw),
                "fi_read of 4 KiB; " + std::to_string(sparse.stores) +
                    " pages, each in another MiB of " + std::to_string(pages >> 10) + " GiB",
                m.discarded});
}
}  // namespace

void store_miss(Bench& b) {
  for (const auto& [row, flags] : {std::pair{"store_miss_4k", CMI_SEG_CLIENT_INCONSIST},
                                   {"store_miss_consist", CMI_SEG_CLIENT_CONSIST}}) {
    FirstStores absent(b, b.scaled(4096, 1024), flags);
    absent.shared.renew();
    const auto before = b.node.stats();
    size_t reads = 0;
    Side ours{[&] { return absent.once(); }, [] {}, [&] { absent.settle(true); }};
    Side raw{[&] {
      const size_t at = absent.order[reads++ % absent.order.size()] * kPage;
      const double begun = now();
      b.raw.endpoint.read(b.raw.polling_peer, b.raw.polling, b.raw.buffer + at, kPage, at);
      return (now() - begun) / kMicro;
    }};
    BareStores bare(b.raw, absent.order, flags == CMI_SEG_CLIENT_INCONSIST);
    const Measured m =
        alternate(b, ours, raw, b.scaled(8000, 1500), 64, RawMode::kPoll, bare.side());
    const auto after = b.node.stats();
    must(after.store_misses - before.store_misses == absent.stores &&
             after.pages_fetched - before.pages_fetched == absent.stores,
         std::to_string(absent.stores) + " stores, but " +
             std::to_string(after.store_misses - before.store_misses) + " misses");
    b.report.row({row, "us", spread_of(m.ours), spread_of(m.raw), "fi_read of 4 KiB", m.discarded,
                  floor_of(m)});
  }
  store_first_sparse(b);
}

void home_store(Bench& b) {
  const size_t pages = 512, rounds = b.scaled(300, 60);  // one region
  const auto run = [&](StoreTo to) {
    call(b.control, kHome, Command::kStoreFirst, pages, rounds, static_cast<uint64_t>(to));
    std::vector<double> samples(b.control.samples, b.control.samples + b.control.sample_count);
    samples.erase(samples.begin(), samples.begin() + static_cast<ptrdiff_t>(samples.size() / 10));
    return samples;
  };
  const auto measure = [&](const char* name, const char* against, StoreTo to) {
    Measured m;
    std::vector<double> tracked;
    for (int i = 0; i < 4; ++i) {
      for (double v : run(StoreTo::kPlainMemory)) m.raw.push_back(v);
      for (double v : run(to)) m.ours.push_back(v);
      if (to != StoreTo::kHeldSegment) continue;
      for (double v : run(StoreTo::kTrackedMemory)) tracked.push_back(v);
    }
    if (!tracked.empty()) m.floors.push_back(std::move(tracked));
    b.report.row({name, "ns", spread_of(m.ours), spread_of(m.raw), against, 0, floor_of(m)});
  };
  {
    Shared shared(b, pages, 1);
    shared.load_all();
    const uint64_t told = b.node.stats().invalidations_received;
    Spinner sharer(b);  // or the region would be nobody's after the first barrier
    sharer.start();
    measure("home_store", "ordinary memory, random pages", StoreTo::kHeldSegment);
    must(b.node.stats().invalidations_received > told && word(shared.page(0), 3) == rounds,
         "the home's barriers published nothing: its stores were not tracked");
  }
  call(b.control, kHome, Command::kMakeSegment, pages * kPage, 0);
  measure("home_store_none", "ordinary memory; nobody imports the segment", StoreTo::kSegment);
  call(b.control, kHome, Command::kDropSegment);
}

void home_wmb(Bench& b) {
  constexpr size_t kHeld = 16;  // pages that this importer has
  constexpr int kMore = 2;      // importers that have one page each
  uint64_t version = 0;
  for (const auto& [mib, size_name] : {std::pair{1, "1M"}, {64, "64M"}, {1024, "1G"}}) {
    if (b.quick && mib > 64) continue;
    Shared shared(b, static_cast<size_t>(mib) << 20 >> 12, kMore);
    for (const uint64_t dirty : {0, 10}) {
      std::vector<double> samples;
      for (size_t i = 0; i < b.scaled(400, 60); ++i) {
        for (size_t p = 0; p < kHeld; ++p) {
          const uint64_t value = word(shared.page(p), 1);
          must(i == 0 || p >= dirty || value == stamp(p, version),
               "a load did not see what the home published");
        }
        for (int o = 0; o < kMore; ++o) call(b.control, kOther1 + o, Command::kLoad, 0);
        const Answer a = call(b.control, kHome, Command::kBarrier, dirty, ++version);
        samples.push_back(static_cast<double>(a.first) / kMicro);
      }
      b.report.row({"home_wmb_" + std::to_string(dirty) + "_" + size_name,
                    "us",
                    spread_of(samples),
                    {},
                    std::to_string(dirty) + " pages stored to; importers have " +
                        std::to_string(kHeld) + ", 1 and 1",
                    0});
    }
  }
}

}  // namespace bench
