// Handles, tokens and node addresses as text: what goes in comes out, and nothing else comes in.
#include "core/access/text_form.hpp"

#include <doctest/doctest.h>

#include <random>

namespace cmi::test::text_form_test {
using namespace cmi::access;

namespace {

using Buffer = std::vector<std::byte>;

RsegInfo some_rseg(size_t listeners, size_t address) {
  RsegInfo i;
  i.uid = 1;
  i.home_seg = 42;
  i.size = 3 << 20;
  i.home_node = {1, 2};
  i.home = {3, 4};
  i.machine = 0x55aa;
  for (size_t n = 0; n < listeners; ++n) {
    i.listeners.push_back({"tcp;ofi_rxm", Buffer(address, static_cast<std::byte>(n))});
  }
  return i;
}

Buffer encoded(const RsegInfo& i) {
  Buffer b(kRsegSize);
  REQUIRE(encode_rseg(i, b) == Status::kOk);
  return b;
}
Buffer some_token() {
  TokenInfo i;
  i.uid = 5;
  i.id = 6;
  i.secret = 0xfeedfacecafebeef;
  i.rights = fabric::kRead;
  i.any_node = true;
  i.home = {3, 4};
  i.keys = {{"tcp", {0x99, 0}}};
  Buffer b(kTokenSize);
  REQUIRE(encode_token(i, b) == Status::kOk);
  return b;
}
Buffer some_naddr() {
  Buffer b(kNaddrSize);
  REQUIRE(encode_naddr({{1, 2}, {3, 4}}, b) == Status::kOk);
  return b;
}

std::string text_of(const Buffer& object) {
  const auto text = to_text(object.data());
  REQUIRE(text);
  return *text;
}

}  // namespace

TEST_CASE("objects_come_back_from_their_text_byte_by_byte") {
  const std::pair<Buffer, const char*> objects[] = {{encoded(some_rseg(1, 16)), "cmi1-rseg-"},
                                                    {encoded(some_rseg(0, 1)), "cmi1-rseg-"},
                                                    {encoded(some_rseg(8, 60)), "cmi1-rseg-"},
                                                    {some_token(), "cmi1-token-"},
                                                    {some_naddr(), "cmi1-naddr-"}};
  for (const auto& [object, prefix] : objects) {
    const std::string text = text_of(object);
    CHECK(text.starts_with(prefix));
    CHECK(text.size() <= kMaxText);
    CHECK(text.find_first_not_of(
              "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") ==
          std::string::npos);
    const auto back = from_text(text);
    REQUIRE(back);
    CHECK(back->bytes == object);
  }
}

TEST_CASE("the_text_leaves_the_filler_out") {
  CHECK(text_of(encoded(some_rseg(1, 16))).size() < 220);
  CHECK(text_of(some_token()).size() < 180);
}

TEST_CASE("a_field_that_ends_as_the_filler_comes_back_as_well") {
  RsegInfo i = some_rseg(1, 16);
  i.listeners[0].blob.assign(40, std::byte{0xc3});
  const Buffer object = encoded(i);
  const auto back = from_text(text_of(object));
  REQUIRE(back);
  CHECK(back->bytes == object);
}

TEST_CASE("no_changed_character_of_a_text_gets_through") {
  for (const Buffer& object : {encoded(some_rseg(1, 16)), some_token(), some_naddr()}) {
    const std::string good = text_of(object);
    for (size_t at = 0; at < good.size(); ++at) {
      for (const char c : {'A', 'z', '-', '_', '0', '=', ' ', '\n', '\0', '\xff'}) {
        if (good[at] == c) continue;
        std::string bad = good;
        bad[at] = c;
        REQUIRE(from_text(bad).status() == Status::kInval);
      }
    }
  }
}

TEST_CASE("no_cut_or_longer_text_gets_through") {
  const std::string good = text_of(some_token());
  for (size_t n = 0; n < good.size(); ++n) {
    REQUIRE(from_text(std::string_view(good).substr(0, n)).status() == Status::kInval);
    REQUIRE(from_text(std::string_view(good).substr(good.size() - n)).status() == Status::kInval);
  }
  for (const char* more : {"A", "AA", "AAAA", "=", " ", "\n"}) {
    CHECK(from_text(good + more).status() == Status::kInval);
  }
  CHECK(from_text(std::string(1 << 20, 'A')).status() == Status::kInval);
}

TEST_CASE("a_text_of_another_kind_or_version_is_refused") {
  std::string text = text_of(some_token());
  text.replace(0, 11, "cmi1-rseg-");
  CHECK(from_text(text).status() == Status::kInval);
  text = text_of(some_token());
  CHECK_FALSE(is_of_other_version(text));
  text[3] = '2';
  CHECK(from_text(text).status() == Status::kInval);
  CHECK(is_of_other_version(text));
  CHECK(is_of_other_version("cmi12-rseg-AAAA"));
  for (const char* word : {"", "cmi", "cmi-", "cmi2", "cmix-rseg-", "other"}) {
    CHECK_FALSE(is_of_other_version(word));
  }
}

TEST_CASE("arbitrary_texts_are_refused") {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string text = i % 3 == 0 ? "cmi1-rseg-" : i % 3 == 1 ? "cmi1-token-" : "cmi1-naddr-";
    for (unsigned n = random() % 1200; n > 0; --n) text += static_cast<char>(random());
    REQUIRE(from_text(text).status() == Status::kInval);
  }
}

TEST_CASE("what_is_no_object_has_no_text") {
  CHECK(to_text(nullptr).status() == Status::kInval);
  Buffer object = some_token();
  object[30] ^= std::byte{1};
  CHECK(to_text(object.data()).status() == Status::kInval);
  const Buffer zeros(kRsegSize);
  CHECK(to_text(zeros.data()).status() == Status::kInval);
}

}  // namespace cmi::test::text_form_test
