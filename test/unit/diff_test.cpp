// Diffs against a byte-by-byte reference, and what comes over the wire malformed.
#include "core/memory/page/diff.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "core/memory/page/compare.hpp"
#include "support/long_run.hpp"

namespace cmi::test::diff_test {
using namespace cmi::memory;

namespace {

using Page = std::array<std::byte, kPageSize>;
using Buffer = std::vector<std::byte>;

Page random_page(std::mt19937_64& rng) {
  Page p;
  for (auto& b : p) b = static_cast<std::byte>(rng());
  return p;
}

struct Encoded {
  size_t changed = 0;
  Buffer wire;
};

Encoded encode(const Page& page, const Page& twin) {
  Buffer room(kMaxDiffSize);
  Writer out(room);
  Encoded e;
  e.changed = encode_diff(page.data(), twin.data(), out);
  REQUIRE(out.ok());
  e.wire.assign(room.begin(), room.begin() + static_cast<ptrdiff_t>(out.size()));
  return e;
}

// The wire form as its definition says it, one byte at a time.
Encoded reference(const Page& page, const Page& twin) {
  Encoded e;
  Buffer runs;
  uint16_t count = 0;
  auto put = [](Buffer& to, size_t v) {
    to.push_back(static_cast<std::byte>(v & 0xff));
    to.push_back(static_cast<std::byte>(v >> 8));
  };
  for (size_t i = 0; i < kPageSize;) {
    if (page[i] == twin[i]) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < kPageSize && page[end] != twin[end]) ++end;
    put(runs, i);
    put(runs, end - i);
    runs.insert(runs.end(), page.begin() + static_cast<ptrdiff_t>(i),
                page.begin() + static_cast<ptrdiff_t>(end));
    e.changed += end - i;
    ++count;
    i = end;
  }
  if (count == 0) return e;
  if (count <= kMaxRuns) {
    put(e.wire, count);
    e.wire.insert(e.wire.end(), runs.begin(), runs.end());
    return e;
  }
  put(e.wire, kBitmap);
  for (size_t i = 0; i < kPageSize; i += 8) {
    unsigned bits = 0;
    for (size_t k = 0; k < 8; ++k) bits |= (page[i + k] != twin[i + k] ? 1u : 0u) << k;
    e.wire.push_back(static_cast<std::byte>(bits));
  }
  for (size_t i = 0; i < kPageSize; ++i) {
    if (page[i] != twin[i]) e.wire.push_back(page[i]);
  }
  return e;
}

bool applies(const Buffer& wire, Page& page) {
  Reader in(wire);
  return apply_diff(in, page.data());
}

struct Run {
  uint16_t offset, length;
};

// A diff with these runs, whether they are legal or not; `bytes` of them are there.
Buffer diff_of(std::initializer_list<Run> runs, size_t missing = 0) {
  Buffer wire(1 << 18);
  Writer out(wire);
  out.put(static_cast<uint16_t>(runs.size()));
  for (const Run& r : runs) {
    out.put(r.offset);
    out.put(r.length);
    const Buffer content(r.length, std::byte{0xee});
    out.bytes(content);
  }
  wire.resize(out.size() - missing);
  return wire;
}

}  // namespace

TEST_CASE("all_of_a_page_differs_when_each_byte_of_it_does_whatever_is_compared_next") {
  std::mt19937_64 rng(1);
  const Page twin = random_page(rng), next = random_page(rng);
  Page page = twin;
  for (auto& b : page) b = ~b;
  const auto differs = [&](const Page& p) {
    const bool all = all_differ(p.data(), twin.data());
    CHECK(all_differ(p.data(), twin.data(), next.data(), p.data()) == all);
    CHECK(all_differ(p.data(), twin.data(), p.data(), twin.data()) == all);
    return all;
  };
  CHECK(differs(page));
  CHECK(!differs(twin));
  for (size_t at = 0; at < kPageSize; ++at) {
    Page one_equal = page;
    one_equal[at] = twin[at];
    CHECK(!differs(one_equal));
  }
}

TEST_CASE("a_diff_is_what_the_definition_says_and_reproduces_the_page") {
  const int rounds = cmi::test::long_run() ? 4000 : 400;
  std::mt19937_64 rng(1);
  for (int round = 0; round < rounds; ++round) {
    const Page twin = random_page(rng);
    Page page = twin;
    // From a single byte to a page full of short runs, of long ones, or of both.
    const size_t writes = size_t{1} << rng() % 12;
    const size_t longest = size_t{1} << rng() % 13;
    for (size_t w = 0; w < writes; ++w) {
      const size_t at = rng() % kPageSize;
      const size_t n = std::min(kPageSize - at, rng() % longest + 1);
      for (size_t i = 0; i < n; ++i) page[at + i] = static_cast<std::byte>(rng());
    }
    const Encoded got = encode(page, twin), wanted = reference(page, twin);
    REQUIRE(got.changed == wanted.changed);
    REQUIRE(got.wire == wanted.wire);
    if (got.changed == 0) continue;

    // A home that others have written to meanwhile: their bytes stay.
    const Page others = random_page(rng);
    Page home = others;
    REQUIRE(applies(got.wire, home));
    Page merged = others;
    for (size_t i = 0; i < kPageSize; ++i) {
      if (page[i] != twin[i]) merged[i] = page[i];
    }
    REQUIRE(home == merged);
  }
}

TEST_CASE("each_width_of_vector_finds_the_same_bytes") {
  std::mt19937_64 rng(2);
  for (int round = 0; round < 500; ++round) {
    const Page twin = random_page(rng);
    Page page = twin;
    for (size_t n = rng() % 200; n > 0; --n) page[rng() % kPageSize] ^= std::byte{1};
    ChangedBits wanted{};
    uint64_t words = 0;
    for (size_t i = 0; i < kPageSize; ++i) {
      if (page[i] == twin[i]) continue;
      wanted[i / 64] |= uint64_t{1} << i % 64;
      words |= uint64_t{1} << i / 64;
    }
    auto check = [&](auto function) {
      ChangedBits got;
      REQUIRE(function(page.data(), twin.data(), got) == words);
      REQUIRE(std::equal(std::begin(got), std::end(got), std::begin(wanted)));
    };
    check(compare);
    for (const CompareWay& way : compare_ways()) {
      INFO(way.name);
      if (way.possible()) check(way.compare);
    }
  }
}

TEST_CASE("the_diff_of_equal_pages_is_nothing_at_all") {
  std::mt19937_64 rng(3);
  const Page page = random_page(rng);
  std::array<std::byte, 4> room{};
  Writer out(room);
  CHECK(encode_diff(page.data(), page.data(), out) == 0);
  CHECK(out.size() == 0);
  CHECK(out.ok());
}

TEST_CASE("every_single_byte_is_found_and_sent_alone") {
  const Page twin{};
  for (size_t i = 0; i < kPageSize; ++i) {
    Page page = twin;
    page[i] = std::byte{0x80};
    const Encoded e = encode(page, twin);
    REQUIRE(e.changed == 1);
    REQUIRE(e.wire.size() == 2 + 4 + 1);
    Page home{};
    REQUIRE(applies(e.wire, home));
    REQUIRE(home == page);
  }
}

TEST_CASE("a_page_changed_throughout_is_one_run") {
  Page page, twin{};
  page.fill(std::byte{1});
  const Encoded e = encode(page, twin);
  CHECK(e.changed == kPageSize);
  CHECK(e.wire.size() == 2 + 4 + kPageSize);
}

TEST_CASE("the_largest_diff_takes_the_size_the_header_promises") {
  Page page, twin{};
  page.fill(std::byte{1});
  for (size_t i = 1; i < kMaxRuns; ++i) page[i * 8] = std::byte{0};
  const Encoded e = encode(page, twin);
  CHECK(e.changed == kPageSize - (kMaxRuns - 1));
  CHECK(e.wire.size() == kMaxDiffSize);
  // One run more, and a bitmap is not longer.
  page[4088] = std::byte{0};
  CHECK(encode(page, twin).wire.size() < kMaxDiffSize);
}

TEST_CASE("a_striped_page_takes_little_more_than_its_changed_bytes") {
  Page page{}, twin{};
  for (size_t i = 0; i < kPageSize; i += 8) page[i] = std::byte{1};
  const Encoded e = encode(page, twin);
  CHECK(e.changed == 512);
  CHECK(e.wire.size() == 2 + 512 + 512);
  Page home{};
  CHECK(applies(e.wire, home));
  CHECK(home == page);
}

TEST_CASE("a_bitmap_without_all_its_bytes_is_refused_and_leaves_the_page_alone") {
  Page page{}, twin{};
  for (size_t i = 0; i < kPageSize; i += 8) page[i] = std::byte{1};
  const Encoded e = encode(page, twin);
  for (size_t size = 0; size < e.wire.size(); ++size) {
    Page home{};
    REQUIRE_FALSE(
        applies(Buffer(e.wire.begin(), e.wire.begin() + static_cast<ptrdiff_t>(size)), home));
    REQUIRE(home == Page{});
  }
}

TEST_CASE("a_diff_without_room_writes_nothing_and_leaves_the_writer_good") {
  Page page{}, twin{};
  page[7] = page[9] = page[4095] = std::byte{1};
  const Encoded e = encode(page, twin);
  for (size_t room = 0; room < e.wire.size(); ++room) {
    Buffer buffer(room, std::byte{0x55});
    Writer out(buffer);
    REQUIRE(encode_diff(page.data(), twin.data(), out) == kDiffNoRoom);
    REQUIRE(out.size() == 0);
    REQUIRE(out.ok());
    REQUIRE(buffer == Buffer(room, std::byte{0x55}));
  }
  Buffer exact(e.wire.size());
  Writer out(exact);
  CHECK(encode_diff(page.data(), twin.data(), out) == 3);
  CHECK(exact == e.wire);
}

TEST_CASE("several_diffs_follow_each_other_in_one_message") {
  Page zero{}, a{}, b{};
  a[0] = std::byte{1};
  b[4095] = std::byte{2};
  Buffer room(100);
  Writer out(room);
  REQUIRE(encode_diff(a.data(), zero.data(), out) == 1);
  REQUIRE(encode_diff(b.data(), zero.data(), out) == 1);
  Reader in(out.done());
  Page page{};
  CHECK(apply_diff(in, page.data()));
  CHECK(page == a);
  CHECK(apply_diff(in, page.data()));
  CHECK(in.done());
  CHECK(page[4095] == std::byte{2});
  CHECK_FALSE(apply_diff(in, page.data()));
}

TEST_CASE("a_malformed_diff_is_refused_and_leaves_the_page_alone") {
  // A good first run in front, so that a check made while writing would show.
  const Buffer bad[] = {
      {},
      Buffer(1),
      diff_of({{0, 8}, {4096, 1}}),       // begins past the end
      diff_of({{0, 8}, {4090, 7}}),       // ends past the end
      diff_of({{0, 8}, {65535, 65535}}),  // a sum that 16 bits would not hold
      diff_of({{0, 8}, {16, 0}}),         // empty
      diff_of({{0, 8}, {7, 8}}),          // overlaps
      diff_of({{16, 8}, {0, 8}}),         // descends
      diff_of({{0, 8}, {0, 8}}),          // twice
      diff_of({{0, 8}, {16, 8}}, 1),      // a byte is missing
      diff_of({{0, 8}, {16, 8}}, 9),      // half a length is missing
      diff_of({{0, 8}, {16, 8}}, 12),     // a run is missing
  };
  for (const Buffer& wire : bad) {
    Page page;
    page.fill(std::byte{0x11});
    const Page before = page;
    CHECK_FALSE(applies(wire, page));
    CHECK(page == before);
  }
}

TEST_CASE("random_bytes_are_refused_or_applied_without_harm") {
  std::mt19937_64 rng(4);
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    Buffer wire(rng() % 64);
    for (auto& b : wire) b = static_cast<std::byte>(rng() % 3 == 0 ? rng() : rng() % 4);
    // Guards on both sides of the page.
    std::array<std::byte, 3 * kPageSize> area;
    area.fill(std::byte{0x77});
    const auto before = area;
    Reader in(wire);
    if (!apply_diff(in, area.data() + kPageSize)) {
      ++refused;
      REQUIRE(area == before);
    }
    REQUIRE(std::equal(area.begin(), area.begin() + kPageSize, before.begin()));
    REQUIRE(std::equal(area.end() - kPageSize, area.end(), before.end() - kPageSize));
  }
  CHECK(refused > 0);
  CHECK(refused < 20000);
}

TEST_CASE("runs_of_every_length_and_alignment_land_exactly") {
  for (size_t offset = 0; offset < 24; ++offset) {
    for (size_t length = 1; length < 40; ++length) {
      Page page{}, twin{};
      for (size_t i = 0; i < length; ++i) page[offset + i] = static_cast<std::byte>(i + 1);
      Page home{};
      REQUIRE(applies(encode(page, twin).wire, home));
      REQUIRE(home == page);
    }
  }
}

}  // namespace cmi::test::diff_test
