// The report of a context: what is encoded comes back, and nothing else is believed.
#include <doctest/doctest.h>

#include <random>

#include "core/node/context_report.hpp"

namespace cmi::test::report_test {
namespace {

node::ContextReport full() {
  node::ContextReport r;
  for (size_t i = 0; i < r.counters.size(); ++i) r.counters[i] = i * i + 1;
  r.times[1].sum = 17;
  r.times[1].counts[2] = 18;
  r.homes = {{4097, {{1, 7, {}, false}, {2, 1, {3, 4}, true}}, {{{5, 6}, 7, 3}}, 11, 12, {}},
             {8194, {}, {}, 0, 0, {}}};
  r.homes[1].pages = {{5, 6, 7, 8, true, {{{9, 1}, 10, {1, 2, 3, 4, 5, 6, 7, 8}}, {}}}};
  r.imports = {{9, 2, 3, 4, {5, 6}, 44, 7, 8, 9, {1, 2, 3, 4, 5, 6, 7}, {}, {}, {}}};
  r.imports[0].way = "cached: why";
  r.imports[0].pages = {{3, {1, 2, 3, 4, 5}}, {4, {}}};
  r.imports[0].regions = {{512, {5, 4, 3, 2, 1}}};
  r.maps = {node::MapLine(true, 3), node::MapLine(false, 0)};
  r.maps[0].cells[1] = node::kMapFlux;
  r.links = {{{1, 2}, true, 3, 4, 5, "net 10.0.0.1:7"}, {{6, 7}, false, 0, 0, 8, ""}};
  r.listeners = {"tcp;ofi_rxm 127.0.0.1:9", ""};
  return r;
}

TEST_CASE("a report is decoded as it was encoded") {
  const auto bytes = node::encode_report(full());
  const auto back = node::decode_report(bytes);
  REQUIRE(back);
  CHECK(back->counters == full().counters);
  REQUIRE(back->homes.size() == 2);
  CHECK(back->homes[0].id == 4097);
  REQUIRE(back->homes[0].tokens.size() == 2);
  CHECK(back->homes[0].tokens[1].fingerprint == 2);
  CHECK(back->homes[0].tokens[1].rights == 1);
  CHECK(back->homes[0].tokens[1].node == NodeId{3, 4});
  CHECK(back->homes[0].tokens[1].revoked);
  CHECK_FALSE(back->homes[0].tokens[0].revoked);
  REQUIRE(back->homes[0].sharers.size() == 1);
  CHECK(back->homes[0].sharers[0].client == ContextId{5, 6});
  CHECK(back->homes[0].sharers[0].instance == 7);
  CHECK(back->homes[0].sharers[0].rights == 3);
  CHECK(back->homes[0].publications == 11);
  CHECK(back->homes[0].notifications == 12);
  CHECK(back->homes[1].tokens.empty());
  REQUIRE(back->imports.size() == 1);
  const node::ImportLine& i = back->imports[0];
  CHECK(i.id == 9);
  CHECK(i.state == 2);
  CHECK(i.rights == 3);
  CHECK(i.fingerprint == 4);
  CHECK(i.home == ContextId{5, 6});
  CHECK(i.home_segment == 44);
  CHECK(i.cached == 7);
  CHECK(i.limit == 8);
  CHECK(i.dirty == 9);
  CHECK(i.counters == full().imports[0].counters);
  CHECK(i.way == "cached: why");
  REQUIRE(i.pages.size() == 2);
  CHECK(i.pages[0].first == 3);
  CHECK(i.pages[0].cost.first_stores == 3);
  CHECK(i.pages[0].cost.useless == 5);
  REQUIRE(i.regions.size() == 1);
  CHECK(i.regions[0].first == 512);
  CHECK(i.regions[0].cost.load_misses == 5);
  CHECK(back->times[1].sum == 17);
  CHECK(back->times[1].counts == full().times[1].counts);
  REQUIRE(back->homes[1].pages.size() == 1);
  const node::PublishedPageLine& p = back->homes[1].pages[0];
  CHECK(p.page == 5);
  CHECK(p.publications == 6);
  CHECK(p.notices == 7);
  CHECK(p.bounces == 8);
  CHECK(p.more_writers);
  REQUIRE(p.writers.size() == 2);
  CHECK(p.writers[0].by == ContextId{9, 1});
  CHECK(p.writers[0].words[7] == 8);
  REQUIRE(back->maps.size() == 2);
  CHECK(back->maps[0].at_home);
  CHECK(back->maps[0].cells == std::vector<uint8_t>{0, node::kMapFlux, 0});
  REQUIRE(back->links.size() == 2);
  CHECK(back->links[0].home == ContextId{1, 2});
  CHECK(back->links[0].dead);
  CHECK(back->links[0].silent == 3);
  CHECK(back->links[0].unreachable == 4);
  CHECK(back->links[0].took == 5);
  CHECK(back->links[0].way == "net 10.0.0.1:7");
  CHECK(back->listeners == full().listeners);
  CHECK_FALSE(back->links[1].dead);
  CHECK(node::encode_report(*back) == bytes);
}

TEST_CASE("a report that lost or gained a byte is refused") {
  auto bytes = node::encode_report(full());
  for (size_t n = 0; n < bytes.size(); ++n) {
    CHECK_FALSE(node::decode_report(Bytes(bytes.data(), n)));
  }
  bytes.push_back(std::byte{0});
  CHECK_FALSE(node::decode_report(bytes));
}

TEST_CASE("a map whose cells are not its pages is refused") {
  node::ContextReport r;
  r.maps = {node::MapLine(true, 5)};
  CHECK(node::decode_report(node::encode_report(r)));
  r.maps[0].cells.pop_back();
  CHECK_FALSE(node::decode_report(node::encode_report(r)));
  r.maps = {node::MapLine(true, 5)};
  r.maps[0].per_cell = 0;
  CHECK_FALSE(node::decode_report(node::encode_report(r)));
}

TEST_CASE("a damaged report asks for no more memory than it has bytes") {
  const auto good = node::encode_report(full());
  std::mt19937_64 random(7);
  for (int round = 0; round < 20000; ++round) {
    auto bad = good;
    for (int n = 0; n < 3; ++n) bad[random() % bad.size()] = static_cast<std::byte>(random());
    const auto back = node::decode_report(bad);
    if (!back) continue;
    CHECK(back->homes.size() * 12 <= bad.size());
    CHECK(back->links.size() * 43 <= bad.size());
    CHECK(back->listeners.size() * 2 <= bad.size());
  }
}

TEST_CASE("tokens have fingerprints of their own") {
  CHECK(node::token_fingerprint(1) != node::token_fingerprint(2));
  CHECK(node::token_fingerprint(1) != node::token_fingerprint(uint64_t{1} << 63));
}

}  // namespace
}  // namespace cmi::test::report_test
