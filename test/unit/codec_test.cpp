// Writer and Reader keep to their bounds; the checksum sees every change of one byte.
#include "core/base/codec.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string_view>
#include <vector>

namespace cmi::test::codec_test {

namespace {
using Buffer = std::vector<std::byte>;

Bytes bytes_of(std::string_view s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}
}  // namespace

TEST_CASE("what_is_written_is_read_back_in_order") {
  Buffer b(64);
  Writer out(b);
  out.put<uint8_t>(0xfe);
  out.put<int32_t>(-5);
  out.put<uint64_t>(0x0102030405060708);
  out.blob(bytes_of("door"));
  out.blob({});
  out.bytes(bytes_of("end"));
  REQUIRE(out.ok());
  CHECK(out.size() == 1 + 4 + 8 + 2 + 4 + 2 + 3);
  CHECK(out.room() == 64 - out.size());

  Reader in(out.done());
  CHECK(in.get<uint8_t>() == 0xfe);
  CHECK(in.get<int32_t>() == -5);
  CHECK(in.get<uint64_t>() == 0x0102030405060708);
  const Bytes listener = in.blob();
  CHECK(std::string_view(reinterpret_cast<const char*>(listener.data()), listener.size()) ==
        "door");
  CHECK(in.blob().empty());
  CHECK(in.left() == 3);
  CHECK(in.ok());
  CHECK_FALSE(in.done());
  CHECK(in.rest().size() == 3);
  CHECK(in.done());
}

TEST_CASE("words_lie_little_endian_and_unaligned") {
  Buffer b(16);
  Writer out(b);
  out.put<uint8_t>(9);
  out.put<uint32_t>(0x44332211);
  for (int i = 0; i < 4; ++i) {
    CHECK(b[static_cast<size_t>(1 + i)] == static_cast<std::byte>(0x11 * (i + 1)));
  }
}

TEST_CASE("a_writer_that_is_full_stays_bad_and_writes_nothing_more") {
  for (size_t room = 0; room < 8; ++room) {
    Buffer b(16, std::byte{0x5a});
    Writer out(std::span<std::byte>(b).first(room));
    out.put<uint64_t>(UINT64_MAX);
    CHECK_FALSE(out.ok());
    out.put<uint8_t>(1);  // would fit; but something before it is missing
    CHECK_FALSE(out.ok());
    CHECK(out.reserve(0) == nullptr);
    CHECK(out.size() == 0);
    CHECK(b == Buffer(16, std::byte{0x5a}));
  }
}

TEST_CASE("a_writer_fills_its_room_to_the_last_byte") {
  Buffer b(10);
  Writer out(b);
  out.put<uint64_t>(1);
  out.put<uint16_t>(2);
  CHECK(out.ok());
  CHECK(out.room() == 0);
  CHECK(out.reserve(0) != nullptr);
  CHECK(out.reserve(1) == nullptr);
}

TEST_CASE("reserving_more_than_an_address_space_is_refused") {
  Buffer b(8);
  Writer out(b);
  out.put<uint8_t>(1);
  CHECK(out.reserve(SIZE_MAX) == nullptr);
  CHECK_FALSE(out.ok());
}

TEST_CASE("a_reader_that_runs_out_gives_zeros_and_stays_bad") {
  const Buffer b(7, std::byte{0xff});
  Reader in(b);
  CHECK(in.get<uint64_t>() == 0);
  CHECK_FALSE(in.ok());
  CHECK(in.get<uint8_t>() == 0);  // there, but a reader does not recover
  CHECK(in.bytes(1).empty());
  CHECK(in.rest().empty());
  CHECK_FALSE(in.ok());
  CHECK_FALSE(in.done());
}

TEST_CASE("a_blob_longer_than_what_is_left_is_refused") {
  Buffer b(40);
  Writer out(b);
  out.blob(bytes_of("0123456789"));
  for (size_t n = 0; n < 12; ++n) {
    Reader in(Bytes(b).first(n));
    CHECK(in.blob().empty());
    CHECK_FALSE(in.ok());
  }
  Reader in(Bytes(b).first(12));
  CHECK(in.blob().size() == 10);
  CHECK(in.done());
}

TEST_CASE("asking_a_reader_for_more_than_an_address_space_is_refused") {
  const Buffer b(8);
  Reader in(b);
  (void)in.get<uint8_t>();
  CHECK(in.bytes(SIZE_MAX).empty());
  CHECK_FALSE(in.ok());
}

TEST_CASE("an_empty_reader_is_done") {
  Reader in({});
  CHECK(in.ok());
  CHECK(in.done());
  CHECK(in.rest().empty());
  CHECK(in.done());
}

TEST_CASE("every_change_of_a_single_byte_changes_the_checksum") {
  std::mt19937 rng(1);
  Buffer b(97);
  for (auto& x : b) x = static_cast<std::byte>(rng());
  const uint64_t before = checksum(b);
  CHECK(checksum(b) == before);
  for (size_t i = 0; i < b.size(); ++i) {
    for (int change = 1; change < 256; ++change) {
      b[i] ^= static_cast<std::byte>(change);
      if (checksum(b) == before) FAIL_CHECK("byte " << i << " change " << change);
      b[i] ^= static_cast<std::byte>(change);
    }
  }
}

TEST_CASE("a_checksum_in_parts_is_the_checksum_of_the_whole") {
  const Bytes all = bytes_of("coherent memory");
  for (size_t n = 0; n <= all.size(); ++n) {
    CHECK(checksum(all.subspan(n), checksum(all.first(n))) == checksum(all));
  }
  CHECK(checksum(all) != checksum(all.first(all.size() - 1)));
}

}  // namespace cmi::test::codec_test
