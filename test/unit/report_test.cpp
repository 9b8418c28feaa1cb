// The report of a context: what is encoded comes back, and nothing else is believed.
#include <doctest/doctest.h>

#include <random>

#include "core/node/context_report.hpp"

namespace cmi::test {
namespace {

node::ContextReport full() {
  node::ContextReport r;
  for (size_t i = 0; i < r.counters.size(); ++i) r.counters[i] = i * i + 1;
  r.homes = {{4097, {{1, 7, {}, false}, {2, 1, {3, 4}, true}}, {{{5, 6}, 7, 3}}, 11, 12},
             {8194, {}, {}, 0, 0}};
  r.imports = {{9, 2, 3, 4, {5, 6}, 7, 8, 9, {1, 2, 3, 4, 5, 6, 7}}};
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
  CHECK(i.cached == 7);
  CHECK(i.limit == 8);
  CHECK(i.dirty == 9);
  CHECK(i.counters == full().imports[0].counters);
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
}  // namespace cmi::test
