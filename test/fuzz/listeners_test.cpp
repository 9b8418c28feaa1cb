// Handles whose listeners are no addresses: who imports is told so, and does not wait for an answer
// that nobody can give.
#include <cmi.h>
#include <doctest/doctest.h>

#include <thread>

#include "core/base/clock.hpp"
#include "fuzz/contexts.hpp"
#include "node/node_support.hpp"

namespace cmi::test::listeners_test {

namespace {

TEST_CASE("a_handle_without_a_good_listener_fails_at_once_and_another_of_the_home_is_taken") {
  NodeFolder folder;
  auto net = fabric::FakeNet::make({});
  Context home(*net, folder.config("home"));
  Context peer(*net, folder.config("peer"));
  const auto made = home.home->create(kPageSize, CMI_SEG_CLIENT_CONSIST, 0);
  REQUIRE(made);
  const auto handle = home.home->exports().export_segment(*made, CMI_SEG_CLIENT_CONSIST, 0);
  REQUIRE(handle);
  const std::jthread serving = service_threads_of(home, peer);
  access::RsegInfo bad = *handle;
  REQUIRE(bad.listeners.size() == 1);
  bad.listeners[0].blob.resize(3);
  bad.listeners.push_back(bad.listeners[0]);
  const Deadline late = Deadline::in(60 * kSecond);
  CHECK(peer.importer->joining().import(bad, 1, false, {late, late}).status() == Status::kInval);
  CHECK_FALSE(late.passed());
  CHECK(peer.importer->joining().import(*handle, 1, false, {late, late}));
}

}  // namespace

}  // namespace cmi::test::listeners_test
