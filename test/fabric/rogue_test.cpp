// The rogue initiator of the system tests, checked against nodes where the truth is known: it must
// be able to get in with a good key, or its being kept out would prove nothing.
#include "support/rogue.hpp"

#include "fabric/world.hpp"

namespace cmi::test::rogue_test {
namespace {

RogueOutcome rogue(Fabric& fabric, Server& server, RemoteKey key, uint64_t offset, size_t len,
                   const char* what) {
  return run_rogue(fabric.traits().provider, hexadecimal(server.endpoint->address()), key, offset,
                   len, what);
}

void a_rogue_gets_in_with_a_good_key_only(World& world) {
  auto there = world.open();
  Server server(*there, kPageSize);
  std::memcpy(server.memory.data() + 8, "\x01\x23\x45\x67", 4);
  auto second =
      there->register_memory(server.memory.data(), kPageSize, fabric::kRead | fabric::kWrite,
                             random_u64(), server.endpoint.get());
  REQUIRE(second);
  const RemoteKey key = (*second)->key();
  RogueOutcome o = rogue(*there, server, key, 8, 4, "read");
  CHECK(o.status == 0);
  CHECK(o.line == "got 01234567\n");
  o = rogue(*there, server, key, 100, 4, "write");
  CHECK(o.status == 0);
  CHECK(o.line == "wrote\n");
  CHECK(server.memory.data()[100] == std::byte{0xbd});
  CHECK(server.memory.data()[104] == std::byte{0});
  second->reset();
  o = rogue(*there, server, key, 8, 4, "read");
  CHECK(o.status == 1);
  CHECK(o.line.rfind("refused", 0) == 0);
  o = rogue(*there, server, key, 200, 4, "write");
  CHECK(o.status == 1);
  CHECK(server.memory.data()[200] == std::byte{0});
}

TEST_CASE("net: a_rogue_gets_in_with_a_good_key_only") {
  run_contract(Kind::kNet, a_rogue_gets_in_with_a_good_key_only);
}
TEST_CASE("sockets: a_rogue_gets_in_with_a_good_key_only") {
  run_contract(Kind::kSockets, a_rogue_gets_in_with_a_good_key_only);
}
TEST_CASE("rxm: a_rogue_gets_in_with_a_good_key_only") {
  run_contract(Kind::kRxm, a_rogue_gets_in_with_a_good_key_only);
}
TEST_CASE("verbs: a_rogue_gets_in_with_a_good_key_only" * doctest::skip(without_verbs())) {
  run_contract(Kind::kVerbs, a_rogue_gets_in_with_a_good_key_only);
}

}  // namespace
}  // namespace cmi::test::rogue_test
