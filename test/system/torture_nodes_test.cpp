// Stores of 1 to 64 bytes, unaligned and across pages, by four nodes to bytes that lie between each
// other's, against a reference. CMI_TEST_LONG=1 makes a million rounds of it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "support/long_run.hpp"
#include "system/calls.hpp"

namespace cmi::test::torture_nodes_test {

namespace {

constexpr uint32_t kNodes = 4;
constexpr size_t kSize = 12 * kPage;

// Stretches of 1 to 64 bytes, one after the other, in turn for each node; the same in each process.
struct Stretch {
  uint32_t start;
  uint32_t length;
};
std::vector<Stretch> stretches_of(uint32_t node) {
  std::mt19937 random(12345);
  std::vector<Stretch> mine;
  uint32_t at = 0;
  for (uint32_t turn = 0; at < kSize; turn = (turn + 1) % kNodes) {
    uint32_t length = 1 + static_cast<uint32_t>(random() % 64);
    if (random() % 3 == 0) length = 64;
    length = std::min<uint32_t>(length, static_cast<uint32_t>(kSize) - at);
    if (turn == node) mine.push_back({at, length});
    at += length;
  }
  return mine;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) void store_64(void* to, const void* from) {
  _mm512_storeu_si512(to, _mm512_loadu_si512(from));
}
__attribute__((target("avx"))) void store_32(void* to, const void* from) {
  _mm256_storeu_si256(static_cast<__m256i*>(to),
                      _mm256_loadu_si256(static_cast<const __m256i*>(from)));
}
#endif

// One store instruction where the machine has one of that width.
void store_bytes(unsigned char* to, const unsigned char* from, uint32_t length) {
#if defined(__x86_64__)
  if (length == 64 && __builtin_cpu_supports("avx512f")) return store_64(to, from);
  if (length == 32 && __builtin_cpu_supports("avx")) return store_32(to, from);
  if (length == 16) {
    return _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                            _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
#endif
  if (length == 8) {
    std::memcpy(to, from, 8);
  } else if (length == 4) {
    std::memcpy(to, from, 4);
  } else if (length == 2) {
    std::memcpy(to, from, 2);
  } else {
    std::memcpy(to, from, length);
  }
}

// The stores of a node, one after the other; the same wherever they are made or only reckoned.
class Sequence {
 public:
  explicit Sequence(uint32_t node) : mine_(stretches_of(node)), random_(777 + node) {}

  struct Store {
    uint32_t at;
    uint32_t length;
    unsigned char bytes[64];
    bool barrier;  // after it
  };
  Store next() {
    constexpr uint32_t kWidths[] = {1, 2, 4, 8, 16, 32, 64};
    const Stretch stretch = mine_[random_() % mine_.size()];
    Store store{};
    store.length = kWidths[random_() % 7];
    if (random_() % 4 == 0) store.length = 1 + static_cast<uint32_t>(random_() % 64);
    store.length = std::min(store.length, stretch.length);
    store.at =
        stretch.start + static_cast<uint32_t>(random_() % (stretch.length - store.length + 1));
    for (uint32_t i = 0; i < store.length; ++i) {
      store.bytes[i] = static_cast<unsigned char>(random_());
    }
    store.barrier = random_() % 16 == 0;
    return store;
  }

 private:
  std::vector<Stretch> mine_;
  std::mt19937 random_;
};

struct Result {
  uint64_t rounds;
  uint64_t lost;  // own bytes that read differently from what was stored last
  uint64_t failed_barriers;
};

Pending<Result> start_storing(Process& process, uint64_t at, uint32_t node, uint64_t rounds) {
  return process.start(
      [](uint64_t view, uint32_t me, uint64_t count) {
        auto* bytes = reinterpret_cast<unsigned char*>(view);
        std::vector<unsigned char> expected(kSize, 0);
        Sequence sequence(me);
        Result result{0, 0, 0};
        while (result.rounds < count) {
          const Sequence::Store store = sequence.next();
          store_bytes(bytes + store.at, store.bytes, store.length);
          std::memcpy(expected.data() + store.at, store.bytes, store.length);
          ++result.rounds;
          if (store.barrier) result.failed_barriers += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
          result.lost +=
              std::memcmp(bytes + store.at, expected.data() + store.at, store.length) != 0;
        }
        result.failed_barriers += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
        return result;
      },
      at, node, rounds);
}

struct Difference {
  uint64_t bytes;
  int64_t first;  // offset, -1: none
};

// What differs in a view from what all the stores together must have left there.
Difference compare(Process& process, uint64_t at, uint64_t rounds) {
  return process.run(
      [](uint64_t view, uint64_t count) {
        std::vector<unsigned char> expected(kSize, 0);
        for (uint32_t node = 0; node < kNodes; ++node) {
          Sequence sequence(node);
          for (uint64_t i = 0; i < count; ++i) {
            const Sequence::Store store = sequence.next();
            std::memcpy(expected.data() + store.at, store.bytes, store.length);
          }
        }
        const auto* bytes = reinterpret_cast<const unsigned char*>(view);
        Difference difference{0, -1};
        for (size_t i = 0; i < kSize; ++i) {
          if (bytes[i] == expected[i]) continue;
          if (difference.bytes++ == 0) difference.first = static_cast<int64_t>(i);
        }
        return difference;
      },
      at, rounds);
}

TEST_SUITE("torture") {
  TEST_CASE("interleaved_stores_of_four_nodes_are_all_kept") {
    const bool is_long = std::getenv("CMI_TEST_LONG") != nullptr;
    const uint64_t rounds = (is_long ? 1000000 : long_run() ? 20000 : 8000) / kNodes;
    const int seconds = is_long ? 3600 : 100;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home, kSize);
    std::vector<Process*> processes{&home};
    std::vector<uint64_t> views{exported.at};
    for (const char* name : {"first", "second", "third"}) {
      processes.push_back(&cluster.spawn(name));
      views.push_back(import_segment(*processes.back(), exported).at);
    }
    std::vector<Pending<Result>> running;
    for (uint32_t node = 0; node < kNodes; ++node) {
      running.push_back(start_storing(*processes[node], views[node], node, rounds));
    }
    for (auto& pending : running) {
      const Result result = pending.get(seconds);
      CHECK(result.rounds == rounds);
      CHECK(result.lost == 0);
      CHECK(result.failed_barriers == 0);
    }
    for (uint32_t node = 0; node < kNodes; ++node) {
      CAPTURE(node);
      const Difference difference = compare(*processes[node], views[node], rounds);
      CHECK(difference.bytes == 0);
      CHECK(difference.first == -1);
    }
  }
}

}  // namespace

}  // namespace cmi::test::torture_nodes_test
