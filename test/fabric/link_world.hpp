// A home and a client with a link to it, for tests of links.
#pragma once

#include "fabric/world.hpp"
#include "support/party.hpp"

namespace cmi::test::link_world {

struct Two {
  explicit Two(World& world) : home(world.open()), client(world.open()) {
    link = client.link_to(home);
  }
  explicit Two(fabric::FakeNet& net) : home(net.open()), client(net.open()) {
    link = client.link_to(home);
  }

  Party home, client;
  std::unique_ptr<fabric::Link> link;
};

inline std::shared_ptr<fabric::Session> live(fabric::Link& link) {
  auto s = link.session(Deadline::in(kLong));
  REQUIRE(s != nullptr);
  return s;
}

}  // namespace cmi::test::link_world
