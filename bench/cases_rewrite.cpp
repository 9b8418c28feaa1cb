// Memory that is rewritten in order.
#include <algorithm>
#include <tuple>

#include "cases.hpp"
#include "pattern.hpp"

namespace bench {

namespace {

// The same rewriting by a bare handler: raw's reads, 16 MiB ahead, each mapped with its twins by
// one fault; then all is compared, and raw's writes carry as many bytes home.
class BareRewrite {
 public:
  BareRewrite(const Raw& raw, size_t pages)
      : raw_(raw), pages_(pages), trap_(make_trap(pages, kWindow)), reads_(pages / kWindow) {
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
    begun_ = fetched_ = 0;
    const uint64_t version = ++version_;
    const double start = now();
    for (size_t p = 0; p < pages_; ++p) store(trap_->page(p), p, Pattern::kDense, version);
    size_t differ = 0;
    for (size_t p = 0; p < pages_; ++p) differ += trap_->compare(p);
    raw_.endpoint.write_many(raw_.polling_peer, raw_.polling, raw_.buffer, kChunk, kChunk,
                             reads_.size(), kInFlight);
    const double took = now() - start;
    must(fetched_ == reads_.size() && differ > pages_ * (kPage / 8 - 2),
         "a bare rewriting did not fetch and change each page");
    return took;
  }
  Trap* trap() const { return trap_.get(); }

 private:
  static constexpr size_t kChunk = size_t{1} << 20, kInFlight = 16, kWindow = kChunk / kPage;
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
  uint64_t version_ = 0;
};
}  // namespace

// Memory that is rewritten in order, absent or cached at first, and taken home by a barrier.
void write_seq(Bench& b) {
  const size_t size = b.quick ? kReadSeqBytesQuick : kReadSeqBytes, pages = size / kPage;
  constexpr size_t kChunk = size_t{1} << 20;
  const auto speed = [&](double nanos) { return static_cast<double>(size) / nanos * 1e3; };  // MB/s
  for (const auto& [row, flags, cached] : {std::tuple{"write_seq", CMI_SEG_CLIENT_INCONSIST, false},
                                           {"write_seq_cached", CMI_SEG_CLIENT_INCONSIST, true},
                                           {"write_seq_consist", CMI_SEG_CLIENT_CONSIST, false}}) {
    Shared shared(b, pages, 0, flags);
    uint64_t version = 0;
    Side ours{[&, from_cache = cached] {
      shared.renew();
      if (from_cache) shared.load_all();
      ++version;
      const double begun = now();
      for (size_t p = 0; p < pages; ++p) store(shared.page(p), p, Pattern::kDense, version);
      barrier();
      const double took = now() - begun;
      shared.check_home(pages, static_cast<int>(Pattern::kDense), version);
      return speed(took);
    }};
    Side raw{[&] {
      const double begun = now();
      b.raw.endpoint.write_many(b.raw.polling_peer, b.raw.polling, b.raw.buffer, kChunk, kChunk,
                                size / kChunk, 16);
      return speed(now() - begun);
    }};
    ours.warm = raw.warm = 1;
    BareRewrite bare(b.raw, pages);
    std::vector<FloorSide> floors;
    if (bare.trap() != nullptr) {
      floors.push_back(trapped(*bare.trap(), [&] { return speed(bare.once()); }));
      floors.back().side.warm = 1;
    }
    const Measured m = alternate(b, ours, raw, b.scaled(9, 5), 1, RawMode::kPoll, floors);
    b.report.row({row, "MB/s", spread_of(m.ours), spread_of(m.raw),
                  std::to_string(size >> 20) + " MiB by fi_writes of 1 MiB, 16 in flight",
                  m.discarded, floor_of(m)});
  }
}

}  // namespace bench
