// Threads that take absent pages at the same time, against as many threads that read them.
#include <sched.h>

#include <exception>
#include <thread>

#include "cases.hpp"
#include "pattern.hpp"

namespace bench {

namespace {

// Pages of one sample, by all threads: several turns of the scheduler long, so that it counts
// little which thread comes first, alone.
constexpr size_t kTogether = 4096;

// Runs work(i) in each of n threads; from when all are ready until the last is done, in
// nanoseconds. `enter` makes what a thread keeps meanwhile, before its time counts.
template <class Enter, class Work>
double together(const std::vector<int>& cpus, size_t n, Enter enter, Work work) {
  std::atomic<size_t> ready{0};
  std::atomic<bool> go{false};
  std::vector<double> ended(n);
  std::vector<std::exception_ptr> failures(n);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < n; ++i) {
    threads.emplace_back([&, i] {
      try {
        pin_to(cpus.empty() ? -1 : cpus[i % cpus.size()]);
        [[maybe_unused]] const auto kept = enter();
        ready.fetch_add(1);
        while (!go.load(std::memory_order_acquire)) sched_yield();
        work(i);
        ended[i] = now();
      } catch (...) {
        failures[i] = std::current_exception();
        ready.fetch_add(1);
      }
    });
  }
  while (ready.load() < n) sched_yield();
  const double begun = now();
  go.store(true, std::memory_order_release);
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& f : failures) {
    if (f) std::rethrow_exception(f);
  }
  return *std::max_element(ended.begin(), ended.end()) - begun;
}

double megabytes_per_second(double nanos) {
  return static_cast<double>(kTogether * kPage) / nanos * 1e3;
}

// Every other page, so that threads which come by in any order never ask for neighbours. Who is
// done with one takes the next.
class ManyMisses {
 public:
  ManyMisses(Bench& bench, size_t pages)
      : bench_(bench), shared_(bench, 2 * pages), order_(random_order(pages, 11)) {
    shared_.load_all();
    shared_.renew();
    before_ = bench.node.stats();
  }
  double ours(size_t n) {
    if (next_ + kTogether > order_.size()) {
      shared_.renew();
      next_ = 0;
    }
    const size_t from = next_;
    next_ += kTogether;
    loads_ += kTogether;
    std::atomic<size_t> taken{0};
    return megabytes_per_second(together(
        bench_.cpus, n, [&] { return std::make_unique<OtherThread>(bench_.node); },
        [&](size_t) {
          for (size_t i; (i = taken.fetch_add(1)) < kTogether;) {
            const uint32_t p = 2 * order_[from + i];
            must(word(shared_.page(p), 0) == stamp(p, shared_.version()),
                 "a load did not see what the home published");
          }
        }));
  }
  double raw(std::vector<std::unique_ptr<RawEndpoint>>& endpoints, fi_addr_t* peers, bool yields) {
    const Raw& raw = bench_.raw;
    if (raw_next_ + kTogether > order_.size()) raw_next_ = 0;
    const size_t n = endpoints.size(), from = raw_next_;
    raw_next_ += kTogether;
    for (auto& e : endpoints) e->set_yields(yields);
    std::atomic<size_t> taken{0};
    return megabytes_per_second(together(
        bench_.cpus, n, [] { return 0; },
        [&](size_t thread) {
          for (size_t i; (i = taken.fetch_add(1)) < kTogether;) {
            const size_t at = 2 * order_[from + i] * kPage;
            endpoints[thread]->read(peers[thread], raw.polling, raw.buffer + at, kPage, at);
          }
        }));
  }
  void check() const {
    const auto after = bench_.node.stats();
    must(after.load_misses - before_.load_misses == loads_ &&
             after.pages_fetched - before_.pages_fetched == loads_,
         "not each load was a miss of one page");
  }

 private:
  Bench& bench_;
  Shared shared_;
  std::vector<uint32_t> order_;
  size_t next_ = 0, raw_next_ = 0, loads_ = 0;
  Stats before_{};
};

// As many pages behind raw's, as in BareMisses, by a bare handler, in each thread with raw's
// endpoint of that thread. A page is mapped when it is there, as in any process with several
// threads.
class ManyBareMisses {
 public:
  ManyBareMisses(Bench& bench, size_t pages)
      : bench_(bench),
        trap_(make_trap(2 * pages)),
        order_(random_order(pages, 11)),
        behind_(2 * pages) {
    if (trap_ == nullptr) return;
    trap_->set_fetch([this](size_t page, const Trap::Meanwhile& prefetch_and_map) {
      const Raw& raw = bench_.raw;
      t_endpoint->read(t_peer, raw.polling, trap_->content(page), kPage, (behind_ + page) * kPage);
      prefetch_and_map();
    });
    trap_->zap(0, 2 * pages);
  }
  double once(std::vector<std::unique_ptr<RawEndpoint>>& endpoints, fi_addr_t* peers, bool yields) {
    if (next_ + kTogether > order_.size()) {
      trap_->zap(0, 2 * order_.size());
      next_ = 0;
    }
    const size_t n = endpoints.size(), from = next_;
    next_ += kTogether;
    for (auto& e : endpoints) e->set_yields(yields);
    std::atomic<size_t> taken{0};
    return megabytes_per_second(together(
        bench_.cpus, n, [] { return 0; },
        [&](size_t thread) {
          t_endpoint = endpoints[thread].get();
          t_peer = peers[thread];
          for (size_t i; (i = taken.fetch_add(1)) < kTogether;) {
            const uint32_t p = 2 * order_[from + i];
            must(word(trap_->page(p), 0) == stamp(behind_ + p, 0),
                 "a bare load did not fetch its page");
          }
        }));
  }
  std::vector<FloorSide> side(const std::function<double()>& once) {
    if (trap_ == nullptr) return {};
    std::vector<FloorSide> floor{trapped(*trap_, once)};
    floor[0].side.warm = 1;
    return floor;
  }

 private:
  static inline thread_local RawEndpoint* t_endpoint = nullptr;
  static inline thread_local fi_addr_t t_peer = FI_ADDR_UNSPEC;

  Bench& bench_;
  std::unique_ptr<Trap> trap_;
  const std::vector<uint32_t> order_;
  const size_t behind_;
  size_t next_ = 0;
};

}  // namespace

void threads(Bench& b) {
  ManyMisses misses(b, 2 * kTogether);
  ManyBareMisses bare(b, 2 * kTogether);
  for (size_t n : {1, 2, 4, 8}) {
    std::vector<std::unique_ptr<RawEndpoint>> endpoints;
    std::vector<fi_addr_t> peers;
    for (size_t i = 0; i < n; ++i) {
      endpoints.push_back(std::make_unique<RawEndpoint>(b.raw.provider, nullptr, 0, false));
      peers.push_back(endpoints[i]->add_peer(b.raw.polling.address));
    }
    // Raw libfabric at its best: who shares a CPU may be better off to yield.
    bool yields = false;
    {
      const RawServing serving(b.control, RawMode::kPoll);
      double best = 0;
      misses.raw(endpoints, peers.data(), true);
      for (const bool candidate : {false, true}) {
        std::vector<double> trials;
        for (size_t i = 0; i < 5; ++i) {
          trials.push_back(misses.raw(endpoints, peers.data(), candidate));
        }
        if (const double speed = spread_of(trials).median; speed > best) {
          best = speed;
          yields = candidate;
        }
      }
    }
    Side ours{[&] { return misses.ours(n); }};
    Side raw{[&] { return misses.raw(endpoints, peers.data(), yields); }};
    ours.warm = raw.warm = 1;
    const Measured m =
        alternate(b, ours, raw, b.scaled(40, 8), 4, RawMode::kPoll,
                  bare.side([&] { return bare.once(endpoints, peers.data(), yields); }));
    b.report.row({"threads_" + std::to_string(n), "MB/s", spread_of(m.ours), spread_of(m.raw),
                  std::to_string(n) + (n == 1 ? " thread" : " threads") +
                      ", each fi_read of 4 KiB on an endpoint of its own, " +
                      (yields ? "yielding" : "polling") + ", the best here",
                  m.discarded, floor_of(m)});
  }
  misses.check();
}

}  // namespace bench
