// Barriers that take many pages home, and those that find nothing to do.
#include <algorithm>
#include <optional>

#include "cases.hpp"
#include "pattern.hpp"

namespace bench {

namespace {

// Pages first, first + stride, ... stored to and taken home by a barrier, of which the time is
// returned; negative if the timer had taken some of them before. In a client-inconsistent segment,
// as segments are by themselves, each first store asks the home for a dirty intent; where that
// takes so long that the timer always comes first, the segment is client-consistent. Where faults
// alone take so long, pages are absent before they are stored to in order: those that are mapped
// writable at once fault once for many. The barrier finds the same.
class Flush {
 public:
  Flush(Bench& bench, size_t pages, size_t stride) : bench_(bench), pages_(pages), stride_(stride) {
    open(CMI_SEG_CLIENT_INCONSIST);
    if (in_time()) return;
    remark_ = "; client-consistent: marks take longer than the timer waits";
    open(CMI_SEG_CLIENT_CONSIST);
    if (in_time() || stride != 1) return;
    remark_ += "; absent before: so do faults";
    absent_ = true;
  }
  // For the remark of the row.
  const std::string& segment() const { return remark_; }
  double once(Pattern pattern) {
    if (absent_) {
      barrier();
      shared_->renew();
    }
    store_all(pattern);
    const uint64_t before = bench_.node.stats().pages_written_back;
    const double begun = now();
    barrier();
    const double took = now() - begun;
    const uint64_t written = bench_.node.stats().pages_written_back - before;
    must(written <= pages_, "a barrier wrote back more pages than were stored to");
    return written == pages_ ? took : -1;
  }
  void check() const {
    for (size_t i = 0; i < pages_; ++i) {
      shared_->check_home(1, static_cast<int>(last_), version_, i * stride_);
      if (stride_ == 1 && i == 0) {
        shared_->check_home(pages_, static_cast<int>(last_), version_, 0);
        return;
      }
    }
  }

 private:
  void open(int32_t flags) {
    shared_.reset();
    shared_.emplace(bench_, pages_ * stride_, 0, flags);
    shared_->load_all();
  }
  // Whether the pages are stored to within a tick of the timer.
  bool in_time() {
    constexpr double kInTime = 8e6;  // ns
    const double begun = now();
    store_all(Pattern::kDense);
    const bool yes = now() - begun < kInTime;
    barrier();
    return yes;
  }
  void store_all(Pattern pattern) {
    ++version_;
    for (size_t i = 0; i < pages_; ++i) {
      store(shared_->page(i * stride_), i * stride_, pattern, version_);
    }
    last_ = pattern;
  }

  Bench& bench_;
  const size_t pages_, stride_;
  std::optional<Shared> shared_;
  bool absent_ = false;
  std::string remark_;
  uint64_t version_ = 0;
  Pattern last_ = Pattern::kWord;
};

// Raw libfabric at its best: which number of writes in flight is fastest depends on the provider
// and on what else the machine does. Tried out before anything is measured.
struct RawWrites {
  Bench& bench;
  size_t bytes, stride, count;
  size_t depth = 0;

  double once() const {
    const Raw& raw = bench.raw;
    const double begun = now();
    raw.endpoint.write_many(raw.polling_peer, raw.polling, raw.buffer, bytes, stride, count, depth);
    return now() - begun;
  }
  std::string choose_depth() {
    const RawServing serving(bench.control, RawMode::kPoll);
    std::pair<double, size_t> best{1e300, 0};
    for (size_t candidate : {size_t{16}, size_t{64}, size_t{256}, count}) {
      depth = candidate;
      std::vector<double> trials;
      for (size_t i = 0; i < bench.scaled(9, 5); ++i) trials.push_back(once());
      best = std::min(best, {spread_of(trials).median, candidate});
    }
    depth = best.second;
    return depth == count ? "all in flight" : std::to_string(depth) + " in flight, the best here";
  }
};

double micros(double nanos) { return nanos < 0 ? nanos : nanos / kMicro; }

void sparse(Bench& b, const char* name, size_t stride, const std::string& against) {
  constexpr size_t kPages = 1000;
  Flush flush(b, kPages, stride);
  Side ours{[&] { return micros(flush.once(Pattern::kWord)); }, [] {}, [&] { flush.check(); }};
  RawWrites writes{b, 8, stride * kPage, kPages};
  const std::string depth = writes.choose_depth();
  Side raw{[&] { return micros(writes.once()); }};
  ours.warm = raw.warm = 1;
  const Measured m = alternate(b, ours, raw, b.scaled(120, 20), 4);
  b.report.row({name, "us", spread_of(m.ours), spread_of(m.raw),
                against + ", " + depth + flush.segment(), m.discarded});
}

}  // namespace

void flush_sparse(Bench& b) {
  sparse(b, "flush_sparse", 1, "1000 fi_writes of 8 B, pages in a row");
}

void flush_scattered(Bench& b) {
  sparse(b, "flush_scattered", 2, "1000 fi_writes of 8 B, every other page");
}

void flush_dense(Bench& b) {
  constexpr size_t kPages = 1000;
  Flush flush(b, kPages, 1);
  const auto speed = [](double nanos) {
    return nanos < 0 ? nanos : static_cast<double>(kPages * kPage) / nanos * 1e3;  // MB/s
  };
  Side ours{[&] { return speed(flush.once(Pattern::kDense)); }, [] {}, [&] { flush.check(); }};
  RawWrites writes{b, kPage, kPage, kPages};
  const std::string depth = writes.choose_depth();
  Side raw{[&] { return speed(writes.once()); }};
  ours.warm = raw.warm = 1;
  const Measured m = alternate(b, ours, raw, b.scaled(80, 16), 4);
  b.report.row({"flush_dense", "MB/s", spread_of(m.ours), spread_of(m.raw),
                "1000 fi_writes of 4 KiB, " + depth + flush.segment(), m.discarded});
}

void flush_striped(Bench& b) {
  Flush striped(b, 10, 1);
  Side ours{[&] { return micros(striped.once(Pattern::kStriped)); }, [] {},
            [&] { striped.check(); }};
  Side dense{[&] { return micros(striped.once(Pattern::kDense)); }, [] {},
             [&] { striped.check(); }};
  const Measured m = alternate(b, ours, dense, b.scaled(400, 60), 8, RawMode::kOff);
  b.report.row({"flush_striped", "us", spread_of(m.ours), spread_of(m.raw),
                "not libfabric: 10 rewritten pages, by the library", m.discarded});
}

void barriers(Bench& b) {
  constexpr size_t kTimes = 1000;
  Shared shared(b, 16);
  shared.load_all();
  const auto before = b.node.stats();
  std::vector<double> empty, read;
  for (size_t i = 0; i < b.scaled(500, 100) + 10; ++i) {
    double begun = now();
    for (size_t n = 0; n < kTimes; ++n) barrier();
    const double took = (now() - begun) / kTimes;
    begun = now();
    for (size_t n = 0; n < kTimes; ++n) cmi_rmb();
    const double took_read = (now() - begun) / kTimes;
    if (i < 10) continue;
    empty.push_back(took);
    read.push_back(took_read);
  }
  must(b.node.stats().publications == before.publications, "an empty barrier sent something");
  b.report.row({"wmb_empty", "ns", spread_of(empty), {}, "nothing dirty at an importer", 0});
  b.report.row({"rmb", "ns", spread_of(read), {}, "any", 0});
}

}  // namespace bench
