// Loads: of cached pages, of absent ones, in order.
#include <algorithm>
#include <random>

#include "cases.hpp"
#include "pattern.hpp"
#include "worker.hpp"

namespace bench {

namespace {

// Every word, in order; volatile keeps the compiler from making it something else than loads. The
// same code for both sides.
[[gnu::noinline]] uint64_t sum_words(const std::byte* from, size_t size) {
  auto* words = reinterpret_cast<const volatile uint64_t*>(from);
  uint64_t a = 0, b = 0, c = 0, d = 0;
  for (size_t i = 0; i < size / 8; i += 4) {
    a += words[i];
    b += words[i + 1];
    c += words[i + 2];
    d += words[i + 3];
  }
  return a + b + c + d;
}

uint64_t sum_of_stamps(size_t pages, uint64_t version) {
  uint64_t sum = 0;
  for (size_t p = 0; p < pages; ++p) sum += stamp(p, version);
  return sum;
}

// Loads of absent pages in random order, one sample each; every page has been cached before, so
// that the memory for it is there, as is the raw side's.
class Misses {
 public:
  Misses(Bench& bench, size_t pages, int32_t flags = 0, size_t stride = 1)
      : bench_(bench), shared_(bench, pages, 0, flags, stride), order_(random_order(pages, 7)) {
    shared_.load_all();
    shared_.renew();
    before_ = bench.node.stats();
  }
  double once() {
    if (next_ == order_.size()) {
      shared_.renew();
      next_ = 0;
    }
    const uint32_t p = order_[next_++];
    std::byte* page = shared_.page(p);
    const double begun = now();
    const uint64_t value = word(page, 0);
    const double took = now() - begun;
    must(value == stamp(p, shared_.version()), "a load did not see what the home published");
    ++loads_;
    return took / kMicro;
  }
  double read_raw(fi_addr_t peer, const RawTarget& target) {
    const Raw& raw = bench_.raw;
    const uint32_t p = order_[raw_next_++ % order_.size()];
    const size_t at = p * kPage;
    const double begun = now();
    raw.endpoint.read(peer, target, raw.buffer + at, kPage, at);
    return (now() - begun) / kMicro;
  }
  void check() const {
    const auto after = bench_.node.stats();
    must(after.load_misses - before_.load_misses == loads_ &&
             after.pages_fetched - before_.pages_fetched == loads_,
         std::to_string(loads_) + " loads, but " +
             std::to_string(after.load_misses - before_.load_misses) + " misses of " +
             std::to_string(after.pages_fetched - before_.pages_fetched) + " pages");
  }

 private:
  Bench& bench_;
  Shared shared_;
  std::vector<uint32_t> order_;
  size_t next_ = 0, raw_next_ = 0, loads_ = 0;
  Stats before_{};
};

// As many pages in the same order by a bare handler that reads from the raw target: those behind
// raw's, since what raw has just read is still in the caches of who sends it.
class BareMisses {
 public:
  BareMisses(const Raw& raw, fi_addr_t peer, const RawTarget& target, size_t pages)
      : trap_(make_trap(pages)), order_(random_order(pages, 7)) {
    if (trap_ == nullptr) return;
    trap_->set_fetch([this, &raw, peer, &target](size_t page, const Trap::Meanwhile& meanwhile) {
      raw.endpoint.read(peer, target, trap_->content(page), kPage, (order_.size() + page) * kPage,
                        meanwhile);
      ++fetched_;
    });
    trap_->zap(0, pages);
  }
  double once() {
    if (next_ == order_.size()) {
      trap_->zap(0, order_.size());
      next_ = 0;
    }
    const uint32_t p = order_[next_++];
    const double begun = now();
    const uint64_t value = word(trap_->page(p), 0);
    const double took = now() - begun;
    must(value == stamp(order_.size() + p, 0) && fetched_ == ++loads_,
         "a bare load did not fetch its page");
    return took / kMicro;
  }
  std::vector<FloorSide> side(
      RawMode mode, const std::function<void()>& before = [] {}) {
    if (trap_ == nullptr) return {};
    return {trapped(
        *trap_,
        [this, before] {
          before();
          return once();
        },
        mode)};
  }

 private:
  std::unique_ptr<Trap> trap_;
  const std::vector<uint32_t> order_;
  size_t next_ = 0, loads_ = 0, fetched_ = 0;
};

}  // namespace

void load_hit(Bench& b) {
  constexpr size_t kPages = 1024;
  constexpr double kWords = kPages * kPage / 8;
  Shared shared(b, kPages);
  shared.load_all();
  const PlainMemory plain(kPages * kPage);
  const uint64_t want = sum_of_stamps(kPages, shared.version());
  const uint64_t want_plain = sum_of_stamps(kPages, 0);
  const auto before = b.node.stats();
  const auto timed = [&](const std::byte* from, uint64_t right) {
    const double begun = now();
    const uint64_t sum = sum_words(from, kPages * kPage);
    const double took = now() - begun;
    must(sum == right, "the sum of what was loaded is wrong");
    return took / kWords;
  };
  Side ours{[&] { return timed(shared.page(0), want); }};
  Side raw{[&] { return timed(plain.at, want_plain); }};
  const Measured m = alternate(b, ours, raw, b.scaled(400, 80), 8, RawMode::kOff);
  must(b.node.stats().load_misses == before.load_misses, "a load of a cached page missed");
  b.report.row({"load_hit", "ns", spread_of(m.ours), spread_of(m.raw),
                "an ordinary array, 8-byte loads in order", m.discarded});
}

namespace {
void miss_row(Bench& b, const std::string& name, int32_t flags, size_t stride,
              const std::string& against) {
  const size_t pages = b.scaled(4096, 1024);
  Misses misses(b, pages, flags, stride);
  const Raw& r = b.raw;
  Side ours{[&] { return misses.once(); }};
  Side raw{[&] { return misses.read_raw(r.polling_peer, r.polling); }};
  BareMisses bare(r, r.polling_peer, r.polling, pages);
  const Measured m =
      alternate(b, ours, raw, b.scaled(12000, 1500), 64, RawMode::kPoll, bare.side(RawMode::kPoll));
  misses.check();
  b.report.row(
      {name, "us", spread_of(m.ours), spread_of(m.raw), against, m.discarded, floor_of(m)});
}
}  // namespace

void load_miss(Bench& b) {
  miss_row(b, "load_miss_4k", 0, 1, "fi_read of 4 KiB");
  // As many pages, all over a segment that is larger than the memory.
  const size_t stride = (size_t{16} << 30) / kPage / b.scaled(4096, 1024);
  miss_row(b, "load_miss_16G", CMI_SEG_NORESERVE, stride,
           "the same; a page in each " + std::to_string(stride * kPage >> 20) + " MiB of 16 GiB");
}

namespace {
// At least 10 ms, up to twice that, the same ones for each side. With a fixed pause a side keeps
// its phase to the home's timer through a whole block, and raw, which is a little faster than ours,
// kept another one: the home's CPU had run less than a millisecond ago before twice as many of
// raw's reads as of ours, and wakes sooner then.
class Pauses {
 public:
  double next() { return std::uniform_real_distribution<>(kShortest, 2 * kShortest)(random_); }

 private:
  static constexpr double kShortest = 10 * kMilli;
  std::mt19937 random_{11};
};

// Nobody has asked the home for anything meanwhile; the importer spends it by `pass`.
void idle_row(Bench& b, const std::string& name, void (*pass)(double nanos),
              const std::string& against) {
  Pauses of_ours, of_raw, of_floor;
  Misses misses(b, 512);
  const Raw& r = b.raw;
  Side ours{[&] {
    pass(of_ours.next());
    return misses.once();
  }};
  Side raw{[&] {
    pass(of_raw.next());
    return misses.read_raw(r.sleeping_peer, r.sleeping);
  }};
  ours.warm = raw.warm = 2;
  BareMisses bare(r, r.sleeping_peer, r.sleeping, 512);
  auto floors = bare.side(RawMode::kSleep, [&] { pass(of_floor.next()); });
  for (FloorSide& f : floors) f.side.warm = 2;
  const Measured m = alternate(b, ours, raw, b.scaled(400, 30), 10, RawMode::kSleep, floors);
  misses.check();
  b.report.row(
      {name, "us", spread_of(m.ours), spread_of(m.raw), against, m.discarded, floor_of(m)});
}
}  // namespace

void load_miss_idle(Bench& b) {
  idle_row(b, "load_miss_idle", compute_for, "fi_read of 4 KiB, target asleep for 10 to 20 ms");
}

void load_miss_asleep(Bench& b) {
  idle_row(b, "load_miss_asleep", sleep_for, "the same, and the initiator has slept as well");
}

void load_miss_busy(Bench& b) {
  Misses misses(b, 512);
  const Raw& r = b.raw;
  const auto busy = [&b] { call(b.control, kHome, Command::kCompute, 1); };
  const auto free = [&b] { call(b.control, kHome, Command::kCompute, 0); };
  const Side ours{[&] { return misses.once(); }, busy, free};
  const Side raw{[&] { return misses.read_raw(r.polling_peer, r.polling); }, busy, free};
  BareMisses bare(r, r.polling_peer, r.polling, 512);
  auto floors = bare.side(RawMode::kPoll);
  for (FloorSide& f : floors) {
    f.side.begin = [&busy, begin = f.side.begin] {
      begin();
      busy();
    };
    f.side.end = [&free, end = f.side.end] {
      free();
      end();
    };
  }
  const Measured m = alternate(b, ours, raw, b.scaled(600, 60), 20, RawMode::kPoll, floors);
  misses.check();
  b.report.row({"load_miss_busy", "us", spread_of(m.ours), spread_of(m.raw),
                "fi_read of 4 KiB; the home's application computes on all its CPUs", m.discarded,
                floor_of(m)});
}

namespace {
constexpr size_t kChunk = size_t{1} << 20, kInFlight = 16;

// The same loads through a bare handler: raw's reads, as many of them under way, each of which is
// mapped by one call when it has come and the first of its pages is touched.
class BareSequence {
 public:
  BareSequence(const Raw& raw, size_t pages)
      : raw_(raw), pages_(pages), trap_(make_trap(pages, kWindow, false)), reads_(pages / kWindow) {
    if (trap_ == nullptr) return;
    trap_->set_fetch([this](size_t page, const Trap::Meanwhile& map) {
      const size_t window = page / kWindow;
      while (begun_ < std::min(window + kInFlight, reads_.size())) begin();
      raw_.endpoint.await_read(reads_[window]);
      map();
      ++fetched_;
    });
  }
  // ns for all of it.
  double once() {
    trap_->zap(0, pages_);
    for (size_t p = 0; p < pages_; ++p) word(trap_->content(p), 0) = 0;
    begun_ = fetched_ = 0;
    const double start = now();
    (void)sum_words(trap_->page(0), pages_ * kPage);
    const double took = now() - start;
    must(fetched_ == reads_.size(), "a bare sequence did not fetch each window once");
    for (size_t p = 0; p < pages_; ++p) {
      must(word(trap_->page(p), 0) != 0, "a bare sequence did not deliver");
    }
    return took;
  }
  Trap* trap() const { return trap_.get(); }

 private:
  static constexpr size_t kWindow = kChunk / kPage;
  void begin() {
    const size_t at = begun_ * kChunk;
    reads_[begun_++] = raw_.endpoint.begin_read(raw_.polling_peer, raw_.polling,
                                                trap_->content(at / kPage), kChunk, at);
  }

  const Raw& raw_;
  const size_t pages_;
  std::unique_ptr<Trap> trap_;
  std::vector<RawEndpoint::Begun> reads_;
  size_t begun_ = 0, fetched_ = 0;
};
}  // namespace

void read_seq(Bench& b) {
  const size_t size = b.quick ? kReadSeqBytesQuick : kReadSeqBytes, pages = size / kPage;
  Shared shared(b, pages);
  const auto speed = [&](double nanos) { return static_cast<double>(size) / nanos * 1e3; };  // MB/s
  Side ours{[&] {
    shared.renew();
    const auto before = b.node.stats();
    const double begun = now();
    const uint64_t sum = sum_words(shared.page(0), size);
    const double took = now() - begun;
    must(sum == sum_of_stamps(pages, shared.version()), "the sum of what was loaded is wrong");
    must(b.node.stats().pages_fetched - before.pages_fetched == pages,
         "pages were fetched twice, or not at all");
    return speed(took);
  }};
  Side raw{[&] {
    for (size_t at = 0; at < size; at += kPage) word(b.raw.buffer + at, 0) = 0;
    const double begun = now();
    b.raw.endpoint.read_many(b.raw.polling_peer, b.raw.polling, b.raw.buffer, kChunk, size / kChunk,
                             kInFlight);
    const double took = now() - begun;
    for (size_t p = 0; p < pages; ++p) {
      must(word(b.raw.buffer + p * kPage, 0) != 0, "raw libfabric did not deliver");
    }
    return speed(took);
  }};
  ours.warm = raw.warm = 1;
  BareSequence bare(b.raw, pages);
  std::vector<FloorSide> floors;
  if (bare.trap() != nullptr) {
    floors.push_back(trapped(*bare.trap(), [&] { return speed(bare.once()); }));
    floors.back().side.warm = 1;
  }
  const Measured m = alternate(b, ours, raw, b.scaled(9, 5), 1, RawMode::kPoll, floors);
  b.report.row({"read_seq", "MB/s", spread_of(m.ours), spread_of(m.raw),
                std::to_string(size >> 20) + " MiB by fi_reads of 1 MiB, 16 in flight", m.discarded,
                floor_of(m)});
}

}  // namespace bench
