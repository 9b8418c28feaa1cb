// Frames: what goes in comes out, and nothing that is not exactly one frame gets in.
#include "fabric/frame.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "fabric/fabric.hpp"

namespace cmi::test::frame_test {
using namespace cmi::fabric;

namespace {

using Buffer = std::vector<std::byte>;

Buffer encoded(const Frame& f) {
  Buffer b(frame_size(f));
  Writer out(b);
  encode_frame(f, out);
  CHECK(out.size() == kFrameHeader + f.payload.size() + f.more.size());
  REQUIRE(out.ok());
  return b;
}

bool refused(const Buffer& b) {
  Frame f;
  return !decode_frame(b, &f);
}

Buffer some_bytes(size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  Buffer b(n);
  for (auto& x : b) x = static_cast<std::byte>(rng());
  return b;
}

constexpr FrameKind kKinds[] = {
    FrameKind::kHello,     FrameKind::kWelcome,      FrameKind::kRequest,
    FrameKind::kReply,     FrameKind::kNotification, FrameKind::kAck,
    FrameKind::kDirectAck, FrameKind::kAckedBelow,   FrameKind::kRefusal};
constexpr size_t kKindAt = 4, kZeroAt = 5, kLengthAt = 32;

}  // namespace

// As doc/design/wire.md has them; written down without this library.
TEST_CASE("the_bytes_of_a_frame") {
  constexpr uint8_t kWire[] = {0x43, 0x4d, 0x49, 0x31, 3,    0,    0x06, 0x05, 0x18, 0x17,
                               0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25,
                               0x24, 0x23, 0x22, 0x21, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33,
                               0x32, 0x31, 3,    0,    0,    0,    0xaa, 0xbb, 0xcc};
  const Buffer payload{std::byte{0xaa}, std::byte{0xbb}, std::byte{0xcc}};
  Buffer wire = encoded({FrameKind::kRequest, 0x0506, 0x1112131415161718, 0x2122232425262728,
                         0x3132333435363738, payload});
  REQUIRE(wire.size() == sizeof kWire);
  CHECK(std::memcmp(wire.data(), kWire, sizeof kWire) == 0);
  for (uint8_t kind = 1; kind <= std::size(kKinds); ++kind) {
    CHECK(encoded({kKinds[kind - 1], 0, 0, 0, 0, {}})[kKindAt] == std::byte{kind});
  }
}

TEST_CASE("what_is_sent_in_two_pieces_arrives_as_one") {
  const Buffer whole = some_bytes(300, 2);
  for (const size_t cut : {size_t{0}, size_t{24}, whole.size()}) {
    const Bytes all(whole);
    const Buffer wire =
        encoded({FrameKind::kNotification, 5, 6, 7, 0, all.subspan(0, cut), all.subspan(cut)});
    Frame out;
    REQUIRE(decode_frame(wire, &out));
    CHECK(Buffer(out.payload.begin(), out.payload.end()) == whole);
    CHECK(out.more.empty());
  }
}

TEST_CASE("a_frame_of_every_kind_and_size_round_trips") {
  for (FrameKind kind : kKinds) {
    for (size_t size : {size_t{0}, size_t{1}, size_t{37}, kMaxPayload}) {
      const Buffer payload = some_bytes(size, 1);
      const Frame in{kind, 0xfffe, UINT64_MAX, 0x0123456789abcdef, 1, payload};
      const Buffer wire = encoded(in);
      Frame out;
      REQUIRE(decode_frame(wire, &out));
      CHECK(out.kind == in.kind);
      CHECK(out.type == in.type);
      CHECK(out.secret == in.secret);
      CHECK(out.number == in.number);
      CHECK(out.acked_below == in.acked_below);
      CHECK(Buffer(out.payload.begin(), out.payload.end()) == payload);
    }
  }
}

TEST_CASE("the_largest_payload_fits_into_one_message") {
  CHECK(kFrameHeader + kNotificationHeader + kMaxPayload <= kMaxMessage);
}

TEST_CASE("a_frame_cut_short_anywhere_is_refused") {
  for (size_t size : {size_t{0}, size_t{20}}) {
    const Buffer payload = some_bytes(size, 2);
    const Buffer wire = encoded({FrameKind::kRequest, 1, 2, 3, 4, payload});
    for (size_t n = 0; n < wire.size(); ++n) {
      CAPTURE(n);
      CHECK(refused(Buffer(wire.begin(), wire.begin() + static_cast<ptrdiff_t>(n))));
    }
    CHECK_FALSE(refused(wire));
  }
}

TEST_CASE("a_frame_with_bytes_behind_it_is_refused") {
  Buffer wire = encoded({FrameKind::kReply, 1, 2, 3, 4, {}});
  wire.push_back(std::byte{0});
  CHECK(refused(wire));
}

TEST_CASE("a_wrong_magic_is_refused_in_each_of_its_bits") {
  const Buffer wire = encoded({FrameKind::kRequest, 1, 2, 3, 4, {}});
  for (size_t bit = 0; bit < 32; ++bit) {
    Buffer bad = wire;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    CHECK(refused(bad));
  }
}

TEST_CASE("an_unknown_kind_and_a_used_reserved_byte_are_refused") {
  const Buffer wire = encoded({FrameKind::kRequest, 1, 2, 3, 4, {}});
  for (int v = 0; v < 256; ++v) {
    Buffer kind = wire, reserved = wire;
    kind[kKindAt] = static_cast<std::byte>(v);
    reserved[kZeroAt] = static_cast<std::byte>(v);
    CAPTURE(v);
    CHECK(refused(kind) == (v < 1 || v > 9));
    CHECK(refused(reserved) == (v != 0));
  }
}

TEST_CASE("a_length_that_does_not_match_is_refused") {
  const Buffer payload = some_bytes(20, 3);
  const Buffer wire = encoded({FrameKind::kRequest, 1, 2, 3, 4, payload});
  for (uint32_t length : {0u, 19u, 21u, 20u + 256u, 0x80000014u, UINT32_MAX}) {
    Buffer bad = wire;
    std::memcpy(bad.data() + kLengthAt, &length, sizeof length);
    CAPTURE(length);
    CHECK(refused(bad));
  }
}

TEST_CASE("garbage_is_refused") {
  std::mt19937 rng(4);
  for (unsigned i = 0; i < 20000; ++i) {
    Buffer b = some_bytes(rng() % 200, i);
    // What is random behind a right magic must still fit in kind, reserved byte and length.
    if (i % 2 == 0 && b.size() >= 4) std::memcpy(b.data(), &kFrameMagic, 4);
    CHECK(refused(b));
  }
}

}  // namespace cmi::test::frame_test
