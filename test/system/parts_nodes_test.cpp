// Tokens for a part of a segment (tok_newva): what they open at an importer, and what not.
#include <doctest/doctest.h>

#include <span>

#include "core/access/handles.hpp"
#include "system/calls.hpp"

namespace cmi::test::parts_nodes_test {

namespace {

constexpr uint64_t kPages = 1100;               // three regions of the home's directory
constexpr uint64_t kFirst = 500, kCount = 100;  // the part: on both sides of a border

struct Scene {
  Cluster cluster;
  Process& home = cluster.spawn("home");
  Process& peer = cluster.spawn("peer");
  Export exported = export_segment(home, kPages* kPage);
  Flat whole = exported.token;
  Flat part;
  Import import;
  explicit Scene(cmi_acc rights = kAllRights) {
    home.run(
        [](uint64_t at) {
          for (uint64_t i = 0; i < kPages; ++i) {
            *reinterpret_cast<uint64_t*>(at + i * kPage) = 1000 + i;
          }
        },
        exported.at);
    part = tok_newva(home, exported.seg, here(kFirst), kCount * kPage, rights);
    REQUIRE(part.ok());
    exported.token = part;
    import = import_segment(peer, exported);
  }
  uint64_t here(uint64_t page) const { return exported.at + page * kPage; }
  uint64_t there(uint64_t page) const { return import.at + page * kPage; }
};

TEST_SUITE("tokens") {
  TEST_CASE("a_token_for_a_part_opens_that_part_alone") {
    Scene s;
    for (const uint64_t page : {kFirst - 1, kFirst + kCount, uint64_t{0}, kPages - 1}) {
      CAPTURE(page);
      const Access got = load(s.peer, s.there(page) + 8);
      CHECK(got.cause() == CMI_ERROR_ACCESS);
      CHECK(got.fault.address == s.there(page) + 8);
      CHECK(store(s.peer, s.there(page), 1).cause() == CMI_ERROR_ACCESS);
      CHECK(atm_cas(s.peer, s.there(page), 1000 + page, 1).fault.cause() == CMI_ERROR_ACCESS);
    }
    // In order, so that reading ahead comes to the part's end; and over its middle.
    int wrong = s.peer.run(
        [](uint64_t at) {
          int n = 0;
          for (uint64_t i = 0; i < kCount; ++i)
            n += load64(at + i * kPage).value != 1000 + kFirst + i;
          return n;
        },
        s.there(kFirst));
    CHECK(wrong == 0);
    CHECK(load(s.peer, s.there(kFirst + kCount)).cause() == CMI_ERROR_ACCESS);
    for (const uint64_t page : {kFirst, kFirst + 50, kFirst + kCount - 1}) {
      CAPTURE(page);
      CHECK(publish(s.peer, s.there(page), page));
      CHECK(load(s.home, s.here(page)).value == page);
      CHECK(atm_cas(s.peer, s.there(page), page, page + 1).swapped);
      CHECK(load(s.home, s.here(page)).value == page + 1);
      REQUIRE(publish(s.home, s.here(page), page + 2));
      CHECK(load(s.peer, s.there(page)).value == page + 2);
    }
    REQUIRE(publish(s.home, s.here(0), 3));  // a page that it may not have
    CHECK(load(s.home, s.here(0)).value == 3);
    CHECK(load(s.home, s.here(kFirst - 1)).value == 1000 + kFirst - 1);
  }

  // Whoever changes what its token says of the part gains nothing.
  TEST_CASE("a_token_that_claims_more_than_its_part_opens_the_part_alone") {
    Scene s;
    Process& forger = s.cluster.spawn("forger");
    const access::TokenInfo given = access::decode_token(s.part.as<cmi_token>()).take();
    access::TokenInfo forged = given;
    forged.part = {given.part.offset - 4 * kPage, given.part.size + 8 * kPage};
    Export export_with_forged = s.exported;
    REQUIRE(ok(access::encode_token(
        forged,
        std::as_writable_bytes(std::span(export_with_forged.token.bytes)).first(s.part.size),
        CMI_VERNO)));
    const Import import = import_segment(forger, export_with_forged);
    for (const uint64_t page : {kFirst - 1, kFirst + kCount}) {
      CAPTURE(page);
      CHECK(load(forger, import.at + page * kPage).cause() == CMI_ERROR_ACCESS);
      CHECK(store(forger, import.at + page * kPage, 1).cause() == CMI_ERROR_ACCESS);
    }
    CHECK(load(forger, import.at + kFirst * kPage).value == 1000 + kFirst);
    CHECK(load(s.home, s.here(kFirst - 1)).value == 1000 + kFirst - 1);
  }

  TEST_CASE("cflush_of_an_address_outside_of_the_tokens_part_raises_access") {
    Scene s;
    REQUIRE(store(s.peer, s.there(kFirst), 77).cause() == Fault::kNone);
    const uint64_t outside = s.there(kFirst - 1) + 8;
    const Fault fault = s.peer.run(
        [](uint64_t in, uint64_t out) {
          void* lines[] = {reinterpret_cast<void*>(out), reinterpret_cast<void*>(in)};
          auto flush = [&] { (void)CMIFN(ctxt(), 10, cflush)(ctxt(), lines, 2); };
          return guarded(flush);
        },
        s.there(kFirst), outside);
    CHECK(fault.cause() == CMI_ERROR_ACCESS);
    CHECK(fault.address == outside);
    CHECK(fault.id == s.import.seg);
    CHECK(load(s.home, s.here(kFirst)).value == 77);  // the other line came home
    CHECK(cflush(s.peer, s.there(kFirst)).ok());
  }

  TEST_CASE("long_runs_of_stores_in_a_part_reach_the_home") {
    Scene s;
    s.peer.run(
        [](uint64_t at) {
          for (uint64_t i = 0; i < kCount * kPage; i += 8)
            *reinterpret_cast<uint64_t*>(at + i) = ~i;
        },
        s.there(kFirst));
    REQUIRE(wmb(s.peer).ok());
    const uint64_t wrong = s.home.run(
        [](uint64_t at) {
          uint64_t n = 0;
          for (uint64_t i = 0; i < kCount * kPage; i += 8) {
            n += *reinterpret_cast<uint64_t*>(at + i) != ~i;
          }
          return n;
        },
        s.here(kFirst));
    CHECK(wrong == 0);
    CHECK(load(s.home, s.here(kFirst + kCount)).value == 1000 + kFirst + kCount);
  }

  TEST_CASE("the_rights_of_a_part_are_the_tokens") {
    Scene s(CMI_ACC_READ);
    CHECK(load(s.peer, s.there(kFirst)).value == 1000 + kFirst);
    CHECK(store(s.peer, s.there(kFirst), 1).cause() == CMI_ERROR_ACCESS);
    CHECK(load(s.peer, s.there(0)).cause() == CMI_ERROR_ACCESS);
  }

  TEST_CASE("what_another_token_does_not_reach_is_no_longer_there") {
    Scene s;
    REQUIRE(set_token(s.peer, s.import.seg, s.whole).ok());
    REQUIRE(load(s.peer, s.there(0)).value == 1000);
    REQUIRE(store(s.peer, s.there(1), 7).cause() == Fault::kNone);  // not flushed
    REQUIRE(store(s.peer, s.there(kFirst), 8).cause() == Fault::kNone);
    REQUIRE(set_token(s.peer, s.import.seg, s.part).ok());
    CHECK(load(s.peer, s.there(0)).cause() == CMI_ERROR_ACCESS);
    CHECK(load(s.peer, s.there(1)).cause() == CMI_ERROR_ACCESS);
    CHECK(load(s.peer, s.there(kFirst)).value == 8);
    CHECK(load_until(s.home, s.here(1), 7) == 7);  // stored while it might
    const Flat next = tok_newva(s.home, s.exported.seg, s.here(kFirst + kCount), kPage, kAllRights);
    REQUIRE(set_token(s.peer, s.import.seg, next).ok());
    CHECK(load(s.peer, s.there(kFirst)).cause() == CMI_ERROR_ACCESS);
    CHECK(load(s.peer, s.there(kFirst + kCount)).value == 1000 + kFirst + kCount);
    CHECK(load(s.peer, s.there(kFirst + kCount + 1)).cause() == CMI_ERROR_ACCESS);
  }

  TEST_CASE("a_part_goes_on_without_the_view_that_named_it") {
    Scene s;
    REQUIRE(load(s.peer, s.there(kFirst)).value == 1000 + kFirst);
    REQUIRE(seg_dt(s.home, s.exported.seg, s.exported.at).ok());
    CHECK(load(s.peer, s.there(kFirst + 1)).value == 1000 + kFirst + 1);
    REQUIRE(tok_del(s.home, s.part).ok());
    CHECK(load(s.peer, s.there(kFirst)).cause() == CMI_ERROR_TOKEN);
  }

  TEST_CASE("a_part_of_another_size_of_segment_is_inval") {
    Scene s;
    const Export small = export_segment(s.home, kPage);
    const Import import = import_bare(s.peer, small);
    CHECK(set_token(s.peer, import.seg, s.part).failed(CMI_ERR_INVAL));
  }
}

}  // namespace

}  // namespace cmi::test::parts_nodes_test
