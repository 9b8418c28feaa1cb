// Handles, tokens and node addresses as bytes: what goes in comes out, and nothing else comes in.
#include "core/access/handles.hpp"

#include <cmi.h>
#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "core/base/fd.hpp"

namespace cmi::test::handles_test {
using namespace cmi::access;

namespace {

using Buffer = std::vector<std::byte>;

Buffer bytes_of(const std::string& s) {
  const auto b = std::as_bytes(std::span(s));
  return {b.begin(), b.end()};
}

RsegInfo some_rseg() {
  RsegInfo i;
  i.uid = 0x1122334455667788;
  i.home_seg = 42;
  i.size = 3 << 20;
  i.flags = CMI_SEG_EXTENSIBLE | CMI_SEG_CLIENT_CONSIST;
  i.attrib = CMI_SEG_WRITE_THROUGH;
  i.home_node = {1, 2};
  i.home = {3, 4};
  i.machine = 0x55aa;
  i.boot = 0x66bb;
  i.listeners = {{"tcp;ofi_rxm", bytes_of("sixteen bytes...")}, {"shm", bytes_of("fi_shm://4711")}};
  return i;
}

TokenInfo some_token() {
  TokenInfo i;
  i.uid = 0x1122334455667788;
  i.id = 5;
  i.secret = 0xfeedfacecafebeef;
  i.rights = fabric::kRead | fabric::kAtomic;
  i.node = {6, 7};
  i.home = {3, 4};
  i.keys = {{"tcp;ofi_rxm", {0x99, 0}}, {"verbs;ofi_rxm", {77, 0x7fff00000000}}};
  return i;
}

NaddrInfo some_naddr() { return {{1, 2}, {3, 4}}; }

Buffer encoded(const RsegInfo& i) {
  Buffer b(kRsegSize);
  REQUIRE(encode_rseg(i, b) == Status::kOk);
  return b;
}
Buffer encoded(const TokenInfo& i) {
  Buffer b(kTokenSize);
  REQUIRE(encode_token(i, b) == Status::kOk);
  return b;
}
Buffer encoded(const NaddrInfo& i) {
  Buffer b(kNaddrSize);
  REQUIRE(encode_naddr(i, b) == Status::kOk);
  return b;
}

Status decode_status(const Buffer& b, RsegInfo /*kind*/) { return decode_rseg(b.data()).status(); }
Status decode_status(const Buffer& b, TokenInfo /*kind*/) {
  return decode_token(b.data()).status();
}
Status decode_status(const Buffer& b, NaddrInfo /*kind*/) {
  return decode_naddr(b.data()).status();
}

// Puts the right checksum into an object that was tampered with, so that the other checks are
// asked.
void seal(Buffer& object) {
  uint32_t length;
  std::memcpy(&length, object.data() + 12, sizeof length);
  REQUIRE(length >= 24);
  REQUIRE(length <= object.size());
  const Bytes all(object.data(), length);
  const uint64_t sum = checksum(all.subspan(24), checksum(all.first(16)));
  std::memcpy(object.data() + 16, &sum, sizeof sum);
}

template <class T>
void set(Buffer& object, size_t at, T value) {
  std::memcpy(object.data() + at, &value, sizeof value);
}

// Offsets of fields, from the description of the wire form.
constexpr size_t kVerno = 0, kVendor = 2, kDevice = 4, kKind = 8, kLength = 12, kFields = 24;

template <class Info>
void no_flipped_bit_gets_through(const Info& info) {
  const Buffer good = encoded(info);
  REQUIRE(decode_status(good, info) == Status::kOk);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    Buffer bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    REQUIRE(decode_status(bad, info) == Status::kInval);
  }
}

template <class Info>
void no_truncation_gets_through(const Info& info) {
  const Buffer good = encoded(info);
  for (size_t n = 0; n < good.size(); ++n) {
    Buffer bad = good;
    std::fill(bad.begin() + static_cast<ptrdiff_t>(n), bad.end(), std::byte{0});
    REQUIRE(decode_status(bad, info) == Status::kInval);
  }
}

template <class Info>
void no_head_of_a_stranger_gets_through(const Info& info) {
  const Buffer good = encoded(info);
  auto refused = [&](size_t at, auto value) {
    Buffer bad = good;
    set(bad, at, value);
    seal(bad);
    return decode_status(bad, info) == Status::kInval;
  };
  CHECK(refused(kVendor, uint16_t{0x4f47}));
  CHECK(refused(kDevice, uint32_t{2}));
  CHECK(refused(kKind, uint32_t{0}));
  for (uint16_t verno : {0, 9, CMI_VERNO + 1, 20, 65535}) CHECK(refused(kVerno, verno));
  // Too short for the fields; one byte more than fits is never summed up.
  CHECK(refused(kLength, uint32_t{24}));
  CHECK(refused(kLength, uint32_t{40}));
  for (uint32_t length : {0u, 23u, static_cast<uint32_t>(good.size()) + 1, UINT32_MAX}) {
    Buffer bad = good;
    set(bad, kLength, length);
    CHECK(decode_status(bad, info) == Status::kInval);
  }
  // Something other than filler behind the fields.
  CHECK(refused(good.size() - 1, uint8_t{0}));
}

template <class Info>
void no_random_bytes_get_through(const Info& info) {
  std::mt19937_64 rng(1);
  const Buffer good = encoded(info);
  for (int round = 0; round < 20000; ++round) {
    Buffer bad(good.size());
    for (auto& b : bad) b = static_cast<std::byte>(rng());
    // Ever more of it right, so that the later checks get to see something.
    const size_t right = std::min<size_t>(static_cast<size_t>(round) % 4 * 8, 16);
    std::copy_n(good.begin(), right, bad.begin());
    if (round % 4 == 3) seal(bad);
    REQUIRE(decode_status(bad, info) == Status::kInval);
  }
}

}  // namespace

TEST_CASE("a_handle_comes_out_as_it_went_in") {
  const RsegInfo in = some_rseg();
  const Buffer b = encoded(in);
  auto out = decode_rseg(b.data());
  REQUIRE(out);
  CHECK(*out == in);

  RsegInfo bare = in;  // everything that may be nothing
  bare.flags = bare.attrib = 0;
  bare.listeners.clear();
  auto bare_out = decode_rseg(encoded(bare).data());
  REQUIRE(bare_out);
  CHECK(*bare_out == bare);
}

// Such a library wrote no more than the listeners.
TEST_CASE("a_handle_of_an_older_library_is_read_and_tells_no_boot") {
  RsegInfo rseg = some_rseg();
  Buffer old = encoded(rseg);
  size_t end = old.size();
  while (old[end - 1] == std::byte{0xc3}) --end;
  std::fill(old.begin() + static_cast<ptrdiff_t>(end - sizeof rseg.boot), old.end(),
            std::byte{0xc3});
  seal(old);
  const auto out = decode_rseg(old.data());
  REQUIRE(out);
  rseg.boot = 0;
  CHECK(*out == rseg);
}

TEST_CASE("a_token_comes_out_as_it_went_in") {
  TokenInfo in = some_token();
  for (bool any_node : {false, true}) {
    in.any_node = any_node;
    if (any_node) in.node = {};
    auto out = decode_token(encoded(in).data());
    REQUIRE(out);
    CHECK(out->uid == in.uid);
    CHECK(out->id == in.id);
    CHECK(out->secret == in.secret);
    CHECK(out->rights == in.rights);
    CHECK(out->any_node == any_node);
    CHECK(out->node == in.node);
    CHECK(out->home == in.home);
    REQUIRE(out->keys.size() == 2);
    for (size_t k = 0; k < 2; ++k) {
      CHECK(out->keys[k].provider == in.keys[k].provider);
      CHECK(out->keys[k].key.key == in.keys[k].key.key);
      CHECK(out->keys[k].key.base == in.keys[k].key.base);
    }
  }
}

TEST_CASE("a_node_address_comes_out_as_it_went_in") {
  for (ContextId context : {ContextId{3, 4}, ContextId{}}) {
    const NaddrInfo in{{1, 2}, context};
    auto out = decode_naddr(encoded(in).data());
    REQUIRE(out);
    CHECK(*out == in);
  }
}

TEST_CASE("an_object_begins_with_the_public_base_and_equal_ones_have_equal_bytes") {
  const Buffer b = encoded(some_rseg());
  cmi_rseg head;
  std::memcpy(&head, b.data(), sizeof head);
  CHECK(head.base.verno == 10);
  CHECK(head.base.vendor == CMI_VENDOR_OFI);
  CHECK(head.base.device == CMI_DEVICE_SOFT);
  CHECK(b == encoded(some_rseg()));

  Buffer newer(kRsegSize);
  REQUIRE(encode_rseg(some_rseg(), newer, CMI_VERNO) == Status::kOk);
  CHECK(static_cast<uint8_t>(newer[0]) == CMI_VERNO);
  CHECK(decode_rseg(newer.data()));
}

TEST_CASE("no_flipped_bit_gets_through") {
  no_flipped_bit_gets_through(some_rseg());
  no_flipped_bit_gets_through(some_token());
  no_flipped_bit_gets_through(some_naddr());
}

TEST_CASE("no_truncation_gets_through") {
  no_truncation_gets_through(some_rseg());
  no_truncation_gets_through(some_token());
  no_truncation_gets_through(some_naddr());
}

TEST_CASE("no_head_of_a_stranger_gets_through") {
  no_head_of_a_stranger_gets_through(some_rseg());
  no_head_of_a_stranger_gets_through(some_token());
  no_head_of_a_stranger_gets_through(some_naddr());
}

TEST_CASE("no_random_bytes_get_through") {
  no_random_bytes_get_through(some_rseg());
  no_random_bytes_get_through(some_token());
  no_random_bytes_get_through(some_naddr());
}

TEST_CASE("an_object_of_one_kind_is_not_taken_for_another") {
  // Room for the largest, since that is what a client has who mixes them up.
  Buffer rseg = encoded(some_rseg()), token = encoded(some_token()), naddr = encoded(some_naddr());
  token.resize(kRsegSize);
  naddr.resize(kRsegSize);
  CHECK(decode_rseg(token.data()).status() == Status::kInval);
  CHECK(decode_rseg(naddr.data()).status() == Status::kInval);
  CHECK(decode_token(rseg.data()).status() == Status::kInval);
  CHECK(decode_token(naddr.data()).status() == Status::kInval);
  CHECK(decode_naddr(rseg.data()).status() == Status::kInval);
  CHECK(decode_naddr(token.data()).status() == Status::kInval);
  CHECK(decode_rseg(nullptr).status() == Status::kInval);
  CHECK(decode_token(nullptr).status() == Status::kInval);
  CHECK(decode_naddr(nullptr).status() == Status::kInval);
}

TEST_CASE("fields_outside_their_range_are_refused_in_both_directions") {
  auto refuses = [](auto change) {
    RsegInfo i = some_rseg();
    change(i);
    Buffer b(kRsegSize);
    return encode_rseg(i, b) == Status::kInval;
  };
  CHECK(refuses([](RsegInfo& i) { i.uid = 0; }));
  CHECK(refuses([](RsegInfo& i) { i.home_seg = 0; }));
  CHECK(refuses([](RsegInfo& i) { i.home_seg = -1; }));
  CHECK(refuses([](RsegInfo& i) { i.size = 0; }));
  CHECK(refuses([](RsegInfo& i) { i.size = (uint64_t{1} << 44) + 1; }));
  CHECK(refuses([](RsegInfo& i) { i.flags = 0x40; }));
  CHECK(refuses([](RsegInfo& i) { i.flags = CMI_SEG_CLIENT_CONSIST | CMI_SEG_CLIENT_INCONSIST; }));
  CHECK(refuses([](RsegInfo& i) { i.attrib = 1; }));
  CHECK(refuses([](RsegInfo& i) { i.home_node = {}; }));
  CHECK(refuses([](RsegInfo& i) { i.home = {}; }));
  CHECK(refuses([](RsegInfo& i) { i.listeners[0].provider.clear(); }));
  CHECK(refuses([](RsegInfo& i) { i.listeners[0].provider = "a b"; }));
  CHECK(refuses([](RsegInfo& i) { i.listeners[0].provider.assign(kMaxProvider + 1, 'x'); }));
  CHECK(refuses([](RsegInfo& i) { i.listeners[0].blob.clear(); }));
  CHECK(refuses([](RsegInfo& i) { i.listeners[0].blob.resize(kMaxListenerAddress + 1); }));

  auto token_refuses = [](auto change) {
    TokenInfo i = some_token();
    change(i);
    Buffer b(kTokenSize);
    return encode_token(i, b) == Status::kInval;
  };
  CHECK(token_refuses([](TokenInfo& i) { i.uid = 0; }));
  CHECK(token_refuses([](TokenInfo& i) { i.id = 0; }));
  CHECK(token_refuses([](TokenInfo& i) { i.rights = 0; }));
  CHECK(token_refuses([](TokenInfo& i) { i.rights = 8; }));
  CHECK(token_refuses([](TokenInfo& i) { i.node = {}; }));
  CHECK(token_refuses([](TokenInfo& i) { i.any_node = true; }));
  CHECK(token_refuses([](TokenInfo& i) { i.home = {}; }));
  CHECK(token_refuses([](TokenInfo& i) { i.keys[1].provider = "\n"; }));

  Buffer b(kNaddrSize);
  CHECK(encode_naddr({{}, {3, 4}}, b) == Status::kInval);

  // The same by way of the wire. rseg: uid, home_seg, size, flags, attrib, node, context, machine,
  // listeners.
  auto wire_refuses = [](const auto& info, size_t at, auto value) {
    Buffer bad = encoded(info);
    set(bad, kFields + at, value);
    seal(bad);
    return decode_status(bad, info) == Status::kInval;
  };
  CHECK(wire_refuses(some_rseg(), 0, uint64_t{0}));
  CHECK(wire_refuses(some_rseg(), 8, int32_t{-5}));
  CHECK(wire_refuses(some_rseg(), 12, uint64_t{0}));
  CHECK(wire_refuses(some_rseg(), 12, UINT64_MAX));
  CHECK(wire_refuses(some_rseg(), 20, int32_t{-1}));
  CHECK(wire_refuses(some_rseg(), 24, int32_t{1}));
  for (int count : {0, 1, 3, 8, 9, 255}) {
    CHECK(wire_refuses(some_rseg(), 68, static_cast<uint8_t>(count)));
  }
  for (int length : {0, 10, 12, 64, 65535}) {  // of the first listener's provider
    CHECK(wire_refuses(some_rseg(), 69, static_cast<uint16_t>(length)));
  }
  // token: uid, id, secret, rights, any_node, node, context, keys.
  CHECK(wire_refuses(some_token(), 8, uint64_t{0}));
  CHECK(wire_refuses(some_token(), 24, uint32_t{16}));
  CHECK(wire_refuses(some_token(), 28, uint8_t{1}));
  CHECK(wire_refuses(some_token(), 28, uint8_t{2}));
  CHECK(wire_refuses(some_token(), 61, uint8_t{200}));
  CHECK(wire_refuses(some_naddr(), 8, uint64_t{5}) == false);  // another node: nothing to refuse
}

TEST_CASE("what_does_not_fit_is_refused_and_leaves_nothing_behind") {
  RsegInfo many = some_rseg();
  many.listeners.assign(kMaxListeners + 1, {"x", bytes_of("y")});
  Buffer b(kRsegSize);
  CHECK(encode_rseg(many, b) == Status::kNoMem);

  RsegInfo large = some_rseg();
  large.listeners.assign(3, {"provider", Buffer(kMaxListenerAddress, std::byte{1})});
  CHECK(encode_rseg(large, b) == Status::kNoMem);
  CHECK(b == Buffer(kRsegSize));

  TokenInfo token = some_token();
  token.keys.assign(kMaxListeners, {std::string(kMaxProvider, 'p'), {1, 2}});
  Buffer t(kTokenSize, std::byte{9});
  CHECK(encode_token(token, t) == Status::kNoMem);
  CHECK(t == Buffer(kTokenSize));  // the secret is not left lying about

  Buffer small(kTokenSize - 1), large_buffer(kTokenSize + 1);
  CHECK(encode_token(some_token(), small) == Status::kInval);
  CHECK(encode_token(some_token(), large_buffer) == Status::kInval);
}

TEST_CASE("a_full_house_of_listeners_and_keys_fits") {
  RsegInfo rseg = some_rseg();
  rseg.listeners.assign(kMaxListeners, {"verbs;ofi_rxm", Buffer(48, std::byte{1})});
  auto out = decode_rseg(encoded(rseg).data());
  REQUIRE(out);
  CHECK(*out == rseg);
  TokenInfo token = some_token();
  token.keys.assign(5, {"verbs;ofi_rxm", {~0ull, ~0ull}});
  CHECK(decode_token(encoded(token).data()));
}

TEST_CASE("listeners_damaged_under_a_good_checksum_are_refused_or_what_they_say") {
  RsegInfo rseg = some_rseg();
  rseg.listeners.assign(kMaxListeners, {"tcp;ofi_rxm", Buffer(16, std::byte{2})});
  const Buffer good = encoded(rseg);
  std::mt19937_64 rng(3);
  int taken = 0;
  for (int round = 0; round < 20000; ++round) {
    Buffer bad = good;
    for (uint64_t n = rng() % 3; n < 3; ++n) {
      bad[kFields + rng() % (bad.size() - kFields)] = static_cast<std::byte>(rng());
    }
    seal(bad);
    const auto out = decode_rseg(bad.data());
    if (!out) continue;
    ++taken;
    REQUIRE(out->listeners.size() <= kMaxListeners);
    for (const FabricAddress& listener : out->listeners) {
      REQUIRE((!listener.provider.empty() && listener.provider.size() <= kMaxProvider));
      REQUIRE((!listener.blob.empty() && listener.blob.size() <= kMaxListenerAddress));
    }
    REQUIRE(encoded(*out) == bad);  // no byte of it was passed over
  }
  CHECK(taken > 0);
}

TEST_CASE("nothing_is_read_beyond_what_an_object_claims") {
  void* p =
      mmap(nullptr, 2 * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(p != MAP_FAILED);
  Mapping pages(p, 2 * kPageSize);
  REQUIRE(mprotect(pages.data() + kPageSize, kPageSize, PROT_NONE) == 0);
  // Puts the first n bytes of an object right in front of the page that must not be touched.
  auto at_the_edge = [&](const Buffer& object, size_t n) {
    std::byte* to = pages.data() + kPageSize - n;
    std::memcpy(to, object.data(), n);
    return to;
  };
  CHECK(decode_rseg(at_the_edge(encoded(some_rseg()), kRsegSize)));
  CHECK(decode_token(at_the_edge(encoded(some_token()), kTokenSize)));
  CHECK(decode_naddr(at_the_edge(encoded(some_naddr()), kNaddrSize)));
  // A naddr is too short for a handle, but says so in its head.
  CHECK(decode_rseg(at_the_edge(encoded(some_naddr()), kNaddrSize)).status() == Status::kInval);
  // Bases of strangers, and a head that claims too much.
  CHECK(decode_rseg(at_the_edge(Buffer(8), 8)).status() == Status::kInval);
  Buffer greedy = encoded(some_rseg());
  set(greedy, kLength, uint32_t{kRsegSize + 1});
  CHECK(decode_rseg(at_the_edge(greedy, 24)).status() == Status::kInval);
}

}  // namespace cmi::test::handles_test
