// A home and an importer over a provider that binds regions to endpoints (FI_MR_ENDPOINT), played
// by the fake, so that what the engine registers is bound to where its clients come.
#include <cmi.h>
#include <doctest/doctest.h>
#include <rdma/fi_domain.h>

#include <cstring>
#include <thread>

#include "core/base/clock.hpp"
#include "fabric/fake/provider.hpp"
#include "fuzz/contexts.hpp"
#include "node/node_support.hpp"

namespace cmi::test::endpoint_bound_test {

namespace {

constexpr uint32_t kPages = 8;
constexpr uint32_t kRights = fabric::kRead | fabric::kWrite | fabric::kAtomic;

fabric::LocalInterface way(fabric::FakeProvider& provider) {
  auto serving = provider.open(), linking = provider.open();
  REQUIRE(serving);
  REQUIRE(linking);
  return {serving.take(), linking.take(), true};
}

void segments_are_shared_and_revoked(const fabric::ProviderModes& modes) {
  NodeFolder folder;
  auto provider = fabric::FakeProvider::make(modes);
  Context home(way(*provider), folder.config("home"));
  Context peer(way(*provider), folder.config("peer"));
  const auto made = home.home->create(kPages * kPageSize, CMI_SEG_CLIENT_CONSIST, 0);
  REQUIRE(made);
  const auto attached =
      home.home->views().attach(*made, kPages * kPageSize, nullptr, false, Deadline::in(kSecond));
  REQUIRE(attached);
  auto* const at_home = static_cast<std::byte*>(*attached);
  std::memset(at_home, 7, kPages * kPageSize);
  const auto handle = home.home->exports().export_segment(*made, CMI_SEG_CLIENT_CONSIST, 0);
  auto token = home.home->exports().new_token(*made, true, {}, kRights, nullptr);
  REQUIRE(handle);
  REQUIRE(token);

  const std::jthread serving = service_threads_of(home, peer);
  const Deadline soon = Deadline::in(20 * kSecond);
  auto imported = peer.importer->joining().import(*handle, 1, false, {soon, soon});
  REQUIRE(imported);
  Import& imp = **imported;
  REQUIRE(ok(peer.importer->tokens().set(*imported, *token, soon)));
  REQUIRE(ok(peer.importer->views().prepare(imp, false)));
  auto view = peer.importer->views().attach(*imported, nullptr, false);
  REQUIRE(view);
  const auto access = [&](uint32_t page, bool write) {
    return peer.importer->faults().serve(**view, (*view)->addr + size_t{page} * kPageSize, write,
                                         nullptr, soon);
  };
  const auto stored_comes_home = [&](uint32_t page) {
    REQUIRE(access(page, true) == Exception::kNone);
    CHECK(imp.page_data(page)[5] == std::byte{7});
    imp.page_data(page)[9] = std::byte{9};
    LossMark mark;
    REQUIRE(ok(peer.importer->publishing().barrier(mark, {soon})));
    CHECK(at_home[page * kPageSize + 9] == std::byte{9});
  };
  stored_comes_home(0);
  SUBCASE("over a session that was rebuilt") {
    imp.link->retire(imp.link->current());
    stored_comes_home(1);
    // The key is the new session's: what the page is fetched with is bound to its endpoint.
    REQUIRE(access(2, false) == Exception::kNone);
    CHECK(imp.page_data(2)[5] == std::byte{7});
  }
  SUBCASE("by a token that was revoked") {
    REQUIRE(ok(home.home->exports().delete_token(*token, {20 * kSecond, 20 * kSecond})));
    CHECK(access(3, false) == Exception::kToken);
    token = home.home->exports().new_token(*made, true, {}, kRights, nullptr);
    REQUIRE(token);
    REQUIRE(ok(peer.importer->tokens().set(*imported, *token, soon)));
    stored_comes_home(4);
  }
  peer.importer->views().detach(*view, soon);
}

TEST_CASE("segments_are_shared_where_regions_are_bound_to_endpoints") {
  fabric::ProviderModes modes;
  modes.mr_mode = FI_MR_ENDPOINT;
  segments_are_shared_and_revoked(modes);
}

TEST_CASE("segments_are_shared_where_a_provider_asks_for_all_there_is") {
  fabric::ProviderModes modes;
  modes.mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT | FI_MR_RAW;
  modes.key_size = 24;
  segments_are_shared_and_revoked(modes);
}

}  // namespace

}  // namespace cmi::test::endpoint_bound_test
