// What bare page faults and signals cost here: the parts that a path has beside its messages. The
// floors of the rows themselves are measured with those rows.
#include <atomic>
#include <thread>

#include "cases.hpp"
#include "pattern.hpp"

namespace bench {

namespace {

// A thread of this process that is in the middle of computing on the home's CPU, if there is one:
// what takes rights from a page has to interrupt it.
class Beside {
 public:
  explicit Beside(int cpu)
      : thread_([this, cpu] {
          pin_to(cpu);
          runs_.store(true);
          while (!stop_.load(std::memory_order_relaxed)) {
          }
        }) {
    while (!runs_.load()) sleep_for(kMilli);
  }
  ~Beside() {
    stop_.store(true);
    thread_.join();
  }

 private:
  std::atomic<bool> runs_{false}, stop_{false};
  std::thread thread_;
};

// Samples of what `once` returns, each of another page in random order; `again` before each pass.
std::vector<double> passes(size_t count, const std::vector<uint32_t>& order,
                           const std::function<void()>& again,
                           const std::function<double(uint32_t)>& once) {
  std::vector<double> samples;
  while (samples.size() < count) {
    again();
    for (uint32_t p : order) samples.push_back(once(p) / kMicro);
  }
  samples.erase(samples.begin(), samples.begin() + static_cast<ptrdiff_t>(samples.size() / 10));
  return samples;
}

template <class F>
double timed(F f) {
  const double begun = now();
  f();
  return now() - begun;
}

}  // namespace

std::unique_ptr<Trap> make_trap(size_t pages, size_t window, bool twins) {
  try {
    return std::make_unique<Trap>(pages, window, twins);
  } catch (const Failure&) {
    return nullptr;
  }
}

FloorSide trapped(Trap& trap, std::function<double()> once, RawMode mode) {
  return {{std::move(once), [&trap] { trap.install(); }, [&trap] { trap.restore(); }}, mode};
}

std::optional<Spread> floor_of(const Measured& m) {
  return m.floors.empty() ? std::nullopt : std::optional(spread_of(m.floors[0]));
}

// How long it takes to block all signals and unblock them, `count` times.
static std::vector<double> mask_samples(size_t count) {
  constexpr uint32_t kTimes = 100;  // once is shorter than a look at the clock
  const auto masks = [](uint32_t) {
    return timed([] {
             for (uint32_t i = 0; i < kTimes; ++i) const Masked masked;
           }) /
           kTimes;
  };
  return passes(
      count, std::vector<uint32_t>(kTimes), [] {}, masks);
}

void floors(Bench& b) {
  const size_t pages = 1024, count = b.scaled(8 * pages, 2 * pages);
  const auto order = random_order(pages, 5);
  Trap trap(pages);
  trap.install();
  const auto row = [&](const char* name, const std::vector<double>& samples, const char* what) {
    b.report.row({name, "us", spread_of(samples), {}, what, 0});
  };
  const auto zap_all = [&] { trap.zap(0, pages); };
  const auto load = [&](uint32_t p) { return timed([&] { touch(trap.page(p)); }); };
  uint64_t value = 0;
  const auto store = [&](uint32_t p) { return timed([&] { word(trap.page(p), 1) = value; }); };
  const auto protect = [&](uint32_t p) {
    size_t differ = 0;
    const double took = timed([&] {
      trap.protect(p);
      differ = trap.compare(p);
    });
    must(differ == 1, "a protected page is not its twin and one store");
    return took;
  };
  const auto map_all = [&] {
    for (size_t p = 0; p < pages; ++p) touch(trap.page(p));
  };
  const auto store_all = [&] {
    ++value;
    for (uint32_t p : order) store(p);
  };
  const auto protect_all = [&] {
    for (uint32_t p : order) protect(p);
    ++value;
  };
  const auto zap = [&](uint32_t p) { return timed([&] { trap.zap(p, 1); }); };

  row("floor_trap_map", passes(count, order, zap_all, load),
      "load of an absent page: SIGBUS, UFFDIO_CONTINUE, back");
  map_all();
  store_all();
  row("floor_trap_store", passes(count, order, protect_all, store),
      "store to a protected page: SIGBUS, copy of 4 KiB, unprotected, back");
  protect_all();
  row("floor_protect", passes(count, order, store_all, protect),
      "UFFDIO_WRITEPROTECT of a page, compared with its copy");
  row("floor_zap", passes(count, order, map_all, zap), "MADV_DONTNEED of a page");
  {
    const Beside beside(b.home_cpu);
    map_all();
    store_all();
    protect_all();
    row("floor_protect_beside", passes(count, order, store_all, protect),
        "floor_protect, another thread of the process runs on another CPU");
    row("floor_zap_beside", passes(count, order, map_all, zap), "floor_zap, likewise");
  }
  row("floor_mask", mask_samples(b.scaled(2000, 500)), "all signals blocked and unblocked");
}

}  // namespace bench
