// The list of cases and what they share.
#include "cases.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "pattern.hpp"

namespace bench {

namespace {
std::vector<Case> network_cases() {
  return {
      {"load_hit", load_hit, {"load_hit"}},
      {"store_hit", store_hit, {"store_hit"}},
      {"load_miss_4k", load_miss, {"load_miss_4k", "load_miss_16G"}},
      {"load_miss_idle", load_miss_idle, {"load_miss_idle"}},
      {"load_miss_asleep", load_miss_asleep, {"load_miss_asleep"}},
      {"load_miss_busy", load_miss_busy, {"load_miss_busy"}},
      {"store_first", store_first_case, {"store_first", "store_first_inconsist"}},
      {"store_miss_4k", store_miss, {"store_miss_4k", "store_miss_consist", "store_first_sparse"}},
      {"read_seq", read_seq, {"read_seq"}},
      {"write_seq", write_seq, {"write_seq", "write_seq_cached", "write_seq_consist"}},
      {"hot_store",
       hot_store,
       {"hot_store_1M", "hot_store_16M", "hot_store_64M", "hot_store_1M_consist",
        "hot_store_16M_consist", "hot_store_64M_consist"}},
      {"hot_store_read", hot_store_read, {"hot_store_16M_read"}},
      {"publish_hot", publish_hot, {"publish_hot_1"}},
      {"flush_sparse", flush_sparse, {"flush_sparse"}},
      {"flush_scattered", flush_scattered, {"flush_scattered"}},
      {"flush_dense", flush_dense, {"flush_dense"}},
      {"flush_striped", flush_striped, {"flush_striped"}},
      {"barriers", barriers, {"wmb_empty", "rmb"}},
      {"publish_1",
       publish_1,
       {"publish_1", "publish_absent_1", "publish_beside_1", "publish_among_1"}},
      {"publish_shared",
       publish_shared,
       {"publish_shared_1", "publish_shared_2", "publish_shared_3", "floor_relay_1",
        "floor_relay_2", "floor_relay_3"}},
      {"wakeup", wakeup, {"wakeup", "floor_wakeup", "wakeup_store"}},
      {"cas", cas, {"cas"}},
      {"home_store", home_store, {"home_store", "home_store_none"}},
      {"home_wmb",
       home_wmb,
       {"home_wmb_0_1M", "home_wmb_10_1M", "home_wmb_0_64M", "home_wmb_10_64M", "home_wmb_0_1G",
        "home_wmb_10_1G"}},
      {"floors",
       floors,
       {"floor_trap_map", "floor_trap_store", "floor_protect", "floor_zap", "floor_protect_beside",
        "floor_zap_beside", "floor_mask"}},
      {"threads", threads, {"threads_1", "threads_2", "threads_4", "threads_8"}},
      {"idle_cpu", idle_cpu, {"idle_cpu_home", "idle_cpu_importer", "home_idle_8G"}},
      {"kv",
       kv,
       {"kv_1", "kv_2", "kv_3", "kv_3_growth", "useless_notifications", "kv_1_time", "kv_2_time",
        "kv_3_time"}},
      {"scatter", scatter, {"scatter_2", "scatter_2_misses", "scatter_4", "scatter_4_misses"}},
      {"crowd", crowd, crowd_rows()},
      {"ycsb", ycsb, ycsb_rows()},
      {"graph", graph, graph_rows()},
      {"peers", peers, {"peers"}},
  };
}

std::vector<Case> mapped_cases() {
  return {
      {"local_load_first", local_load_first, {"local_load_first"}, true},
      {"local_store_first", local_store_first, {"local_store_first"}, true},
      {"local_hit", local_hit, {"local_hit"}, true},
      {"local_cas", local_cas, {"local_cas"}, true},
      {"local_wmb_empty", local_wmb_empty, {"local_wmb_empty"}, true},
      {"local_publish", local_publish, {"local_publish"}, true},
      {"local_wakeup", local_wakeup, {"local_wakeup"}, true},
      {"local_copy", local_copy, {"local_copy"}, true},
      {"local_import", local_import, {"local_import"}, true},
      {"local_kv", local_kv, {"local_kv_1", "local_kv_2", "local_kv_3"}, true},
      {"local_wordcount", local_wordcount, {"local_wordcount"}, true},
      {"local_windows", windows, window_rows(), true},
  };
}
}  // namespace

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> all = network_cases();
    for (Case& c : mapped_cases()) all.push_back(std::move(c));
    return all;
  }();
  return cases;
}

Shared::Shared(Bench& bench, size_t pages, int others, int32_t flags, size_t stride)
    : bench_(bench), pages_(pages), others_(others), stride_(stride) {
  bench.control.stride = stride;
  call(bench.control, kHome, Command::kMakeSegment, pages * stride * kPage, 1,
       static_cast<uint64_t>(flags));
  renew();
  import_ = std::make_unique<Imported>(bench.node, bench.control);
  for (int i = 0; i < others; ++i) call(bench.control, kOther1 + i, Command::kImport);
}

Shared::~Shared() {
  try {
    for (int i = 0; i < others_; ++i) call(bench_.control, kOther1 + i, Command::kLeave);
    import_.reset();
    call(bench_.control, kHome, Command::kDropSegment);
  } catch (const Failure&) {  // the next case finds out
  }
}

void Shared::renew() { call(bench_.control, kHome, Command::kStamp, pages_, ++version_); }

void Shared::load_all() const {
  for (size_t p = 0; p < pages_; ++p) {
    must(holds(page(p), p, Pattern::kHome, version_), "a page does not hold what the home stored");
  }
}

void Shared::check_home(size_t count, int pattern, uint64_t stored_version, size_t first) const {
  call(bench_.control, kHome, Command::kCheck, count, stored_version,
       static_cast<uint64_t>(pattern), first);
}

void Spinner::start() {
  bench_.control.stop_spinning.store(0);
  bench_.control.seen_value.store(UINT64_MAX);
  ask(bench_.control, role_, Command::kSpin, 0);
  runs_ = true;
}

void Spinner::stop() {
  if (!runs_) return;
  runs_ = false;
  bench_.control.stop_spinning.store(1);
  await(bench_.control, role_);
}

Spinner::~Spinner() {
  try {
    stop();
  } catch (const Failure&) {  // another one is on its way already
  }
}

void Spinner::await_value(uint64_t value) const {
  const double give_up = now() + 10 * kSecond;
  while (bench_.control.seen_value.load(std::memory_order_acquire) != value) {
    must(now() < give_up, "the spinning thread does not see the store");
  }
}

std::vector<uint32_t> random_order(size_t pages, unsigned seed) {
  std::vector<uint32_t> order(pages);
  std::iota(order.begin(), order.end(), 0u);
  std::mt19937 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  // Swapping the second of two neighbours away may make new ones: until there are none.
  for (bool again = true; again;) {
    again = false;
    for (size_t i = 0; i < pages; ++i) {
      if (order[(i + 1) % pages] != order[i] + 1) continue;
      std::swap(order[(i + 1) % pages], order[random() % pages]);
      again = true;
    }
  }
  return order;
}

Measured alternate(Bench& bench, const Side& ours, const Side& raw, size_t count, size_t block,
                   RawMode mode, const std::vector<FloorSide>& floors) {
  Measured m;
  m.floors.resize(floors.size());
  const auto run = [&](const Side& side, std::vector<double>& samples) {
    side.begin();
    for (size_t i = 0; i < side.warm; ++i) side.once();
    for (size_t i = 0; i < block; ++i) {
      const double took = side.once();
      if (took >= 0) {
        samples.push_back(took);
      } else {
        ++m.discarded;
      }
    }
    side.end();
  };
  // Where a side is far slower than it should be, fewer samples say so as well.
  constexpr double kLongest = 40 * kSecond;
  const double enough = now() + kLongest;
  while (m.ours.size() < count && (m.ours.empty() || now() < enough)) {
    {
      const RawServing serving(bench.control, mode);
      run(raw, m.raw);
    }
    for (size_t i = 0; i < floors.size(); ++i) {
      const RawServing serving(bench.control, floors[i].mode);
      run(floors[i].side, m.floors[i]);
    }
    // Threads of the library that met the raw one computing on their CPU sleep for a while instead
    // of spinning: until that is over.
    sleep_for(25 * kMilli);
    run(ours, m.ours);
    must(m.discarded < 2 * block + count, "most samples did not measure what the row says");
  }
  return m;
}

}  // namespace bench
