// What an initiator gets that is bound by nothing and uses libfabric directly, with an address and
// a key taken from a handle and a token: as much as the token allows while it is in force, and
// nothing otherwise. The program is rogue/rogue.cpp.
#include <doctest/doctest.h>

#include <string>

#include "core/base/codec.hpp"
#include "support/rogue.hpp"
#include "system/calls.hpp"
#include "system/each_provider.hpp"

namespace cmi::test::rogue_nodes_test {

namespace {

constexpr uint64_t kOffset = 3 * kPage + 8;
constexpr const char* kSecretHex = "8877665544332211";  // the bytes of kSecret in memory
constexpr uint64_t kSecret = 0x1122334455667788;

// Where to knock, and with which key: read from the objects as they travel. Both begin with a head
// of 24 bytes; see doc/design for the fields that follow.
struct LocalInterface {
  std::string provider, address;  // the address in hexadecimal
  uint64_t key = 0, base = 0;
};
std::string text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
LocalInterface way_into(const Flat& handle, const Flat& token) {
  constexpr size_t kHead = 24;
  LocalInterface way;
  Reader rseg(std::as_bytes(std::span(handle.bytes)).subspan(kHead));
  rseg.bytes(8 + 4 + 8 + 4 + 4 + 16 + 16 + 8);  // uid, id, size, flags, attributes, node, context,
                                                // machine
  REQUIRE(rseg.get<uint8_t>() > 0);
  way.provider = text_of(rseg.blob());
  way.address = hexadecimal(rseg.blob());
  Reader tok(std::as_bytes(std::span(token.bytes)).subspan(kHead));
  tok.bytes(8 + 8 + 8 + 4 + 1 + 16 + 16);  // uid, id, secret, rights, any node, node, context
  REQUIRE(tok.get<uint8_t>() > 0);
  REQUIRE(text_of(tok.blob()) == way.provider);
  way.key = tok.get<uint64_t>();
  way.base = tok.get<uint64_t>();
  REQUIRE(rseg.ok());
  REQUIRE(tok.ok());
  return way;
}

RogueOutcome rogue(const LocalInterface& way, const char* what) {
  return run_rogue(way.provider, way.address, {way.key, way.base}, kOffset, 8, what);
}

TEST_SUITE("security") {
  TEST_CASE("a_rogue_initiator_gets_nothing_after_tok_del") {
    with_each_provider([](Cluster& cluster, Process& home, const Env& env) {
      const Export exported = export_segment(home);
      REQUIRE(store(home, exported.at + kOffset, kSecret).cause() == Fault::kNone);
      const Flat kept = tok_new(home, exported.seg, kAllRights);
      Export other = exported;
      other.token = kept;
      Process& peer = cluster.spawn("peer", env);
      const Import import = import_segment(peer, other);
      const LocalInterface way = way_into(exported.handle, exported.token);
      // The token is a key and opens as much as it says: or what follows would prove nothing.
      CHECK(rogue(way, "read").line == std::string("got ") + kSecretHex + "\n");
      REQUIRE(tok_del(home, exported.token).ok());
      const RogueOutcome read = rogue(way, "read");
      CHECK(read.refused());
      CHECK(read.line.find(kSecretHex) == std::string::npos);
      CHECK(rogue(way, "write").refused());
      CHECK(load(home, exported.at + kOffset).value == kSecret);
      // Who has a token of its own is not disturbed.
      CHECK(load(peer, import.at + kOffset).value == kSecret);
      CHECK(publish(peer, import.at, 5));
      CHECK(load(home, exported.at).value == 5);
    });
  }

  // So that the case above proves something of closing the key, not of the rogue.
  TEST_CASE("a_rogue_initiator_gets_in_when_tok_del_closes_nothing") {
    with_each_provider([](Cluster& cluster, Process&, const Env& env) {
      Env broken = env;
      broken.emplace_back("CMI_FAULT_POINT", "mutate_revocation_unfenced=fail");
      Process& home = cluster.spawn("broken", broken);
      const Export exported = export_segment(home);
      REQUIRE(store(home, exported.at + kOffset, kSecret).cause() == Fault::kNone);
      const LocalInterface way = way_into(exported.handle, exported.token);
      REQUIRE(tok_del(home, exported.token).ok());
      CHECK(rogue(way, "read").line == std::string("got ") + kSecretHex + "\n");
    });
  }

  TEST_CASE("a_rogue_initiator_gets_nothing_past_the_break") {
    with_each_provider([](Cluster& cluster, Process& home, const Env& env) {
      const Answer made = seg_get(home, 16 * kPage, CMI_SEG_EXTENSIBLE);
      REQUIRE(made.ok());
      REQUIRE(seg_brk(home, made.seg(), 8 * kPage).ok());
      Export exported{made.seg(), seg_at(home, made.seg()).at(), 16 * kPage,
                      seg_exp(home, made.seg()), tok_new(home, made.seg(), kAllRights)};
      REQUIRE(store(home, exported.at + kOffset, kSecret).cause() == Fault::kNone);
      Process& peer = cluster.spawn("peer", env);
      const Import import = import_segment(peer, exported);
      CHECK(load(peer, import.at + kOffset).value == kSecret);
      const LocalInterface way = way_into(exported.handle, exported.token);
      LocalInterface past = way, before = way;
      past.base += 8 * kPage - kOffset;
      before.base -= 3 * kPage;
      CHECK(rogue(past, "read").refused());
      CHECK(rogue(past, "write").refused());
      CHECK(rogue(way, "read").line == std::string("got ") + kSecretHex + "\n");
      REQUIRE(seg_brk(home, exported.seg, 2 * kPage).ok());
      CHECK(rogue(way, "read").refused());
      CHECK(rogue(way, "write").refused());
      // The same key still opens what lies before the break, unless the provider chooses a new one
      // for that, and who keeps to the rules goes on.
      const bool chooses = env.front().second.find("verbs") != std::string::npos;
      CHECK((rogue(before, "read").line.starts_with("got ") || chooses));
      CHECK(load(peer, import.at + kOffset).cause() == CMI_ERROR_SEG_BRK);
      CHECK(publish(peer, import.at + kPage, 5));
      CHECK(load(home, exported.at + kPage).value == 5);
      REQUIRE(seg_brk(home, exported.seg, 16 * kPage).ok());
      CHECK(load(home, exported.at + kOffset).value == 0);
    });
  }

  TEST_CASE("a_rogue_initiator_gets_nothing_outside_of_the_part_of_its_token") {
    with_each_provider([](Cluster&, Process& home, const Env&) {
      const Export exported = export_segment(home, 8 * kPage);
      for (const uint64_t page : {2, 3, 4}) {
        REQUIRE(store(home, exported.at + page * kPage + 8, kSecret).cause() == Fault::kNone);
      }
      const Flat part = home.run(
          [](cmi_seg seg, uint64_t at) {
            return copy_of(CMIFN(ctxt(), 11, tok_newva)(ctxt(), seg, reinterpret_cast<void*>(at),
                                                        kPage, CMI_NADDR_ANY, kAllRights),
                           seg, CMI_ATTR_TOKEN_SIZE);
          },
          exported.seg, exported.at + 3 * kPage);
      REQUIRE(part.ok());
      const LocalInterface way = way_into(exported.handle, part);
      CHECK(rogue(way, "read").line == std::string("got ") + kSecretHex + "\n");
      for (const int64_t pages : {-1, 1}) {
        CAPTURE(pages);
        LocalInterface outside = way;
        outside.base += static_cast<uint64_t>(pages) * kPage;
        const RogueOutcome read = rogue(outside, "read");
        CHECK(read.refused());
        CHECK(read.line.find(kSecretHex) == std::string::npos);
        CHECK(rogue(outside, "write").refused());
      }
      CHECK(load(home, exported.at + 2 * kPage + 8).value == kSecret);
      CHECK(load(home, exported.at + 4 * kPage + 8).value == kSecret);
      CHECK(rogue(way, "write").status == 0);
    });
  }

  TEST_CASE("a_rogue_initiator_without_a_token_gets_nothing") {
    with_each_provider([](Cluster&, Process& home, const Env&) {
      const Export exported = export_segment(home, 8 * kPage, CMI_ACC_READ);
      REQUIRE(store(home, exported.at + kOffset, kSecret).cause() == Fault::kNone);
      const LocalInterface way = way_into(exported.handle, exported.token);
      LocalInterface guess = way;
      for (uint64_t key : {way.key ^ 1, way.key + 1, uint64_t{0}, uint64_t{1}}) {
        guess.key = key;
        CHECK(rogue(guess, "read").refused());
        CHECK(rogue(guess, "write").refused());
      }
      CHECK(rogue(way, "read").line == std::string("got ") + kSecretHex + "\n");
      CHECK(rogue(way, "write").refused());  // the token is for reading
      LocalInterface beyond = way;
      beyond.base += exported.size;
      CHECK(rogue(beyond, "read").refused());
      LocalInterface before = way;
      before.base -= kOffset + 8;
      CHECK(rogue(before, "read").refused());
      const Flat write_only = tok_new(home, exported.seg, CMI_ACC_WRITE);
      const LocalInterface in = way_into(exported.handle, write_only);
      CHECK(rogue(in, "read").refused());
      CHECK(load(home, exported.at + kOffset).value == kSecret);
    });
  }
}

}  // namespace

}  // namespace cmi::test::rogue_nodes_test
