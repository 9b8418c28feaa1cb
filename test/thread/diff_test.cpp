// A diff applied at home while threads of the home use the rest of the page.
#include "core/memory/page/diff.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "core/base/clock.hpp"

namespace cmi::test::diff_test {
using namespace cmi::memory;

TEST_CASE("applying_a_diff_neither_tears_words_nor_touches_its_neighbours") {
  alignas(kPageSize) static std::byte page[kPageSize];
  std::memset(page, 0, sizeof page);
  // The diff covers bytes 5 to 31: three whole words, and the upper end of the first word, whose
  // other bytes belong to a counter of this node.
  constexpr size_t kFirst = 5, kEnd = 32;
  auto diff_with = [](std::byte value, std::array<std::byte, 64>& wire) {
    std::array<std::byte, kPageSize> changed{}, twin{};
    twin.fill(~value);
    changed = twin;
    for (size_t i = kFirst; i < kEnd; ++i) changed[i] = value;
    Writer out(wire);
    return encode_diff(changed.data(), twin.data(), out) == kEnd - kFirst;
  };
  std::array<std::byte, 64> ones{}, twos{};
  REQUIRE(diff_with(std::byte{0x11}, ones));
  REQUIRE(diff_with(std::byte{0x22}, twos));

  std::atomic<bool> stop{false}, torn{false}, lost{false};
  // How often the reader saw a word of one diff and then one of the other.
  std::atomic<int> seen_changes{0};
  std::thread reader([&] {
    uint64_t before = 0;
    while (!stop.load()) {
      for (size_t at = 8; at < kEnd; at += 8) {
        const uint64_t word =
            __atomic_load_n(reinterpret_cast<uint64_t*>(page + at), __ATOMIC_RELAXED);
        if (word != 0 && word != 0x1111111111111111u && word != 0x2222222222222222u) torn = true;
        if (word != before) ++seen_changes;
        before = word;
      }
    }
  });
  std::thread neighbour([&] {
    for (uint32_t n = 1; !stop.load(); ++n) {
      auto* counter = reinterpret_cast<uint32_t*>(page);  // bytes 0 to 3
      __atomic_store_n(counter, n, __ATOMIC_RELAXED);
      if (__atomic_load_n(counter, __ATOMIC_RELAXED) != n) lost = true;
    }
  });
  bool applied = true;
  const Deadline deadline = Deadline::in(20 * kSecond);
  for (int i = 0; (i < 400000 || seen_changes.load() < 1000) && !deadline.passed(); ++i) {
    Reader in(i % 2 == 0 ? ones : twos);
    applied = apply_diff(in, page) && applied;
  }
  stop = true;
  reader.join();
  neighbour.join();
  CHECK(applied);
  CHECK(seen_changes.load() >= 1000);  // the threads were at it together
  CHECK_FALSE(torn.load());
  CHECK_FALSE(lost.load());
  CHECK(page[4] == std::byte{0});
  CHECK(page[kFirst] != std::byte{0});
  CHECK(page[kEnd - 1] == page[kFirst]);
  CHECK(page[kEnd] == std::byte{0});
}

}  // namespace cmi::test::diff_test
