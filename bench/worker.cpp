// Command loops.
#include "worker.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "node.hpp"
#include "pattern.hpp"
#include "raw.hpp"
#include "relay.hpp"
#include "trap.hpp"

namespace bench {

namespace {

// Serves raw libfabric in the home process. Everything of libfabric that it uses is its own.
class RawThread {
 public:
  RawThread(Control& control, const std::string& provider, size_t size)
      : control_(control),
        memory_(size),
        polled_(provider, memory_.at, size, false),
        slept_on_(provider, memory_.at, size, true) {
    polled_.describe(&control.polling);
    slept_on_.describe(&control.sleeping);
  }
  ~RawThread() {
    if (!thread_.joinable()) return;
    control_.raw_wanted.store(static_cast<uint32_t>(RawMode::kEnd));
    futex_wake(control_.raw_wanted);
    thread_.join();
  }
  double cpu_time() {
    clockid_t clock{};
    must(thread_.joinable() && pthread_getcpuclockid(thread_.native_handle(), &clock) == 0,
         "the raw thread has no clock");
    return reading_of(clock);
  }
  void connect() {
    polled_peer_ = polled_.add_peer(control_.peer_address);
    slept_on_peer_ = slept_on_.add_peer(control_.peer_address);
    fetching_peer_ = polled_.add_peer(control_.fetching_address);
    thread_ = std::thread([this] {
      try {
        serve();
      } catch (const std::exception& e) {
        std::fprintf(stderr, "cmi_bench: raw target: %s\n", e.what());
        control_.raw_failed.store(1);
      }
    });
  }

 private:
  void serve() {
    for (;;) {
      const uint32_t mode = control_.raw_wanted.load();
      control_.raw_now.store(mode);
      const auto same = [&] { return control_.raw_wanted.load(std::memory_order_relaxed) == mode; };
      switch (static_cast<RawMode>(mode)) {
        case RawMode::kOff:
          futex_wait(control_.raw_wanted, mode, kSecond);
          break;
        case RawMode::kPoll:
          while (same()) polled_.serve(polled_peer_);
          break;
        case RawMode::kSleep:
          while (same()) slept_on_.serve_sleeping(slept_on_peer_, 20);
          break;
        case RawMode::kFetch:
          while (same()) polled_.serve_fetches(fetching_peer_);
          break;
        case RawMode::kRelay:
          while (same()) relay_.step();
          break;
        case RawMode::kEnd:
          return;
      }
    }
  }

  Control& control_;
  PlainMemory memory_;
  RawEndpoint polled_, slept_on_;
  fi_addr_t polled_peer_ = FI_ADDR_UNSPEC, slept_on_peer_ = FI_ADDR_UNSPEC,
            fetching_peer_ = FI_ADDR_UNSPEC;
  RelayHome relay_{control_, polled_};
  std::thread thread_;
};

// Threads that do nothing but compute, one for each CPU that this process may use.
class Computing {
 public:
  Computing() {
    for (size_t i = 0; i < allowed_cpus().size(); ++i) {
      threads_.emplace_back([this] {
        volatile uint64_t sum = 0;
        for (uint64_t n = 0; !stop_.load(std::memory_order_relaxed); ++n) sum = sum + n * n;
      });
    }
  }
  ~Computing() {
    stop_.store(true);
    for (auto& t : threads_) t.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

void await_seen(const Control& control, uint64_t value) {
  const double give_up = now() + 10 * kSecond;
  while (control.seen_value.load(std::memory_order_acquire) != value) {
    must(now() < give_up, "the sharer does not see the store");
    sched_yield();
  }
}

// Each page stored to once a round, in an order that no prefetcher knows; between rounds a barrier,
// so that the next store to each page is a first one again. A sample is the mean of a round: one
// store of plain memory is shorter than reading the clock. In a segment that is held nobody's
// stores are counted before the sharer has the region again, which a barrier takes from it.
void store_first(Control& control, std::byte* at, size_t pages, size_t rounds, StoreTo to,
                 const std::function<void()>& between) {
  std::vector<uint32_t> order(pages);
  std::iota(order.begin(), order.end(), 0u);
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  for (uint32_t p : order) word(at + p * kPage, 3) = 0;
  control.sample_count = 0;
  for (size_t round = 0; round < rounds && round < kMaxSamples; ++round) {
    if (to == StoreTo::kHeldSegment) word(at, 1) = round + 1;
    between();
    if (to == StoreTo::kHeldSegment) await_seen(control, round + 1);
    const double begun = now();
    for (uint32_t p : order) word(at + p * kPage, 3) = round + 1;
    control.samples[control.sample_count++] = (now() - begun) / static_cast<double>(pages);
  }
  between();
}

void store_first(Control& control, const Mailbox& m, HomeSegment* segment) {
  const size_t pages = m.args[0], rounds = m.args[1];
  const auto to = static_cast<StoreTo>(m.args[2]);
  if (to == StoreTo::kPlainMemory) {
    const PlainMemory plain(pages * kPage);
    store_first(control, plain.at, pages, rounds, to, [] {});
  } else if (to == StoreTo::kTrackedMemory) {
    Tracked tracked(pages);
    control.sample_count = 0;
    if (!tracked.good()) return;
    store_first(control, tracked.at(), pages, rounds, to, [&] { tracked.begin(); });
  } else {
    store_first(control, segment->page(0), pages, rounds, to, [] { barrier(); });
  }
}

// Loads by one importer while another one stores: each page holds what was stored last or before,
// and never what was before that.
void sample(Control& control, const Imported& import, Mailbox& m) {
  const size_t pages = m.args[0];
  std::vector<uint64_t> last(pages, 0);
  std::mt19937 random(3);
  m.results[0] = m.results[1] = 0;
  for (double due = now(); control.stop_spinning.load(std::memory_order_relaxed) == 0;) {
    const size_t p = random() % pages;
    const uint64_t value = word(import.page(p), 1);
    must(value >= last[p], "a load found an older value than the one before it");
    m.results[1] += value > last[p] ? 1 : 0;
    last[p] = value;
    ++m.results[0];
    due = std::max(due + kMilli, now());
    sleep_for(std::max(due - now(), 0.0));
  }
}

// With `zeros` so many words in all may have been left out.
void check_words(const Control& control, const std::byte* at, size_t pages, size_t members,
                 size_t zeros) {
  const auto* words = reinterpret_cast<const volatile uint64_t*>(at);
  for (size_t w = 0; w < pages * kPage / 8; ++w) {
    const uint64_t value = words[w];
    if (value == 0 && zeros > 0) {
      --zeros;
      continue;
    }
    must(value == control.crew[w % members].last,
         "word " + std::to_string(w) + " is not what its importer stored last");
  }
}

void spin(Control& control, std::byte* page, bool yield) {
  // The first value is published too: whoever waits for it knows that the page is cached here.
  volatile uint64_t& watched = word(page, 1);
  for (uint64_t last = UINT64_MAX; control.stop_spinning.load(std::memory_order_relaxed) == 0;) {
    const uint64_t value = watched;
    if (value != last) {
      control.seen_at.store(now(), std::memory_order_relaxed);
      control.seen_value.store(value, std::memory_order_release);
      last = value;
    }
    if (yield) sched_yield();
  }
}

void await_each(Control& control, const Node& node, const Imported& import, const Mailbox& m) {
  constexpr uint32_t kLongestMs = 10000;
  for (uint64_t i = m.args[0]; i < m.args[0] + m.args[1]; ++i) {
    if (m.args[2] == 0) {
      must(cmi_ofi_latch_wait(node.ctxt(), latch(import.page(0), i), kLongestMs) == 0,
           "a latch does not open");
    } else {
      const double give_up = now() + kLongestMs * kMilli;
      while (control.awaited.load(std::memory_order_acquire) == i) {
        must(now() < give_up, "a futex does not wake");
        futex_wait(control.awaited, static_cast<uint32_t>(i), kSecond);
      }
    }
    control.seen_at.store(now(), std::memory_order_relaxed);
    control.seen_value.store(i + 1, std::memory_order_release);
  }
}

}  // namespace

void command_loop(Control& control, int role, const std::function<void(Mailbox&)>& execute) {
  Mailbox& m = control.mail[role];
  control.ready[role].store(1);
  futex_wake(control.ready[role]);
  for (uint32_t done = 0;;) {
    while (m.asked.load(std::memory_order_acquire) == done) {
      futex_wait(m.asked, done, kSecond);
    }
    ++done;
    m.error[0] = 0;
    const bool quit = m.command == Command::kQuit;
    try {
      if (!quit) execute(m);
    } catch (const std::exception& e) {
      std::snprintf(m.error, sizeof m.error, "%s", e.what());
    }
    m.answered.store(done, std::memory_order_release);  // pairs with await()
    futex_wake(m.answered);
    if (quit) return;
  }
}

PlainMemory::PlainMemory(size_t n)
    : at(static_cast<std::byte*>(
          mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
      size(n) {
  must(at != MAP_FAILED, "no memory");
  madvise(at, n, MADV_NOHUGEPAGE);  // segments have pages of 4 KiB
  for (size_t p = 0; p < n / kPage; ++p) store(at + p * kPage, p, Pattern::kHome, 0);
}

PlainMemory::~PlainMemory() { munmap(at, size); }

void run_home(Control& control, const std::string& provider, size_t raw_size) {
  RawThread raw(control, provider, raw_size);
  Node node(role_name(kHome), provider);
  std::unique_ptr<HomeSegment> segment;
  std::optional<Computing> computing;
  command_loop(control, kHome, [&](Mailbox& m) {
    const uint64_t pages = m.args[0], version = m.args[1];
    switch (m.command) {
      case Command::kConnectRaw:
        raw.connect();
        break;
      case Command::kCpuTime:
        m.results[0] = static_cast<uint64_t>(cpu_time());
        m.results[1] = static_cast<uint64_t>(raw.cpu_time());
        break;
      case Command::kMakeSegment:
        segment.reset();
        segment = std::make_unique<HomeSegment>(node, m.args[0], m.args[1] != 0,
                                                static_cast<int32_t>(m.args[2]), control);
        break;
      case Command::kDropSegment:
        segment.reset();
        break;
      case Command::kStamp:
        for (uint64_t p = 0; p < pages; ++p)
          store(segment->page(p * control.stride), p, Pattern::kHome, version);
        barrier();
        break;
      case Command::kCheck:
        for (uint64_t p = m.args[3]; p < m.args[3] + pages; ++p) {
          must(
              holds(segment->page(p * control.stride), p, static_cast<Pattern>(m.args[2]), version),
              "page " + std::to_string(p) + " does not hold what was stored last");
        }
        break;
      case Command::kBarrier: {
        for (uint64_t p = 0; p < pages; ++p) store(segment->page(p), p, Pattern::kWord, version);
        const double begun = now();
        barrier();
        m.results[0] = static_cast<uint64_t>(now() - begun);
        break;
      }
      case Command::kCheckWords:
        check_words(control, segment->page(0), pages, m.args[1], m.args[2]);
        break;
      case Command::kPeek:
        m.results[0] = word(segment->page(m.args[0]), 0);
        break;
      case Command::kCompute:
        computing.reset();
        if (m.args[0] != 0) computing.emplace();
        break;
      case Command::kStoreFirst:
        store_first(control, m, segment.get());
        break;
      default:
        fail("not a command for the home");
    }
  });
}

void run_other(Control& control, int role, const std::string& provider, bool shares_cpu) {
  std::optional<Node> node;  // made when first needed, so that it disturbs nothing before
  std::unique_ptr<Imported> import;
  std::optional<RelaySharer> relay;
  command_loop(control, role, [&](Mailbox& m) {
    switch (m.command) {
      case Command::kImport:
        if (!node) node.emplace(role_name(role), provider);
        import = std::make_unique<Imported>(*node, control);
        break;
      case Command::kLeave:
        import.reset();
        break;
      case Command::kLoad:
        m.results[0] = word(import->page(m.args[0]), 1);
        m.results[1] = node->stats().load_misses + node->stats().pages_updated;
        break;
      case Command::kSpin:
        spin(control, import->page(m.args[0]), shares_cpu);
        break;
      case Command::kAwait:
        await_each(control, *node, *import, m);
        break;
      case Command::kSample:
        sample(control, *import, m);
        break;
      case Command::kOpenRelay:
        if (!relay) relay.emplace(control, role, provider);
        break;
      case Command::kRelay:
        relay->serve(m.args[0] != 0);
        break;
      default:
        fail("not a command for an importer");
    }
  });
}

}  // namespace bench
