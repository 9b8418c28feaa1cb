// Contract: what has no right to succeed does not, touches nothing, and harms nobody else.
#include "fabric/world.hpp"
#include "support/skip.hpp"

namespace cmi::test::refusal_test {
namespace {

constexpr size_t kBytes = 4 * kPageSize;

// Each attempt is an initiator of its own: a refusal may cost it its connection.
Cause try_read(Fabric& fabric, Server& server, RemoteKey key, uint64_t offset, size_t len) {
  Client client(fabric, server.endpoint->address());
  std::vector<std::byte> into(len, std::byte{0x77});
  const Cause c = client.read(into.data(), len, key, offset, 2 * kSecond);
  if (c != Cause::kOk) CHECK(into == std::vector<std::byte>(len, std::byte{0x77}));
  return c;
}

Cause try_write(Fabric& fabric, Server& server, RemoteKey key, uint64_t offset, size_t len) {
  Client client(fabric, server.endpoint->address());
  const std::vector<std::byte> from(len, std::byte{0x99});
  return client.write(from.data(), len, key, offset, 2 * kSecond);
}

// A swap that was refused has not told what was there either.
Cause try_swap(Fabric& fabric, Server& server, RemoteKey key, uint64_t offset) {
  Client client(fabric, server.endpoint->address());
  constexpr uint64_t kNothing = 0x7777777777777777;
  uint64_t found = kNothing;
  const Cause c =
      client.cas(&found, 0x3333333333333333, 0x9999999999999999, key, offset, 2 * kSecond);
  if (c != Cause::kOk) CHECK(found == kNothing);
  return c;
}

void check_untouched(Server& server) {
  for (size_t i = 0; i < server.memory.size(); ++i) {
    if (server.memory.data()[i] == std::byte{0x33}) continue;
    FAIL("byte " << i << " was changed");
  }
}

CMI_CONTRACT(a_key_that_was_never_given_opens_nothing, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kBytes);
  std::memset(server.memory.data(), 0x33, kBytes);
  RemoteKey wrong = server.region->key();
  wrong.key ^= 0x10;
  CHECK(try_read(*here, server, wrong, 0, 64) != Cause::kOk);
  CHECK(try_write(*here, server, wrong, 0, 64) != Cause::kOk);
  CHECK(try_write(*here, server, wrong, 0, kPageSize) != Cause::kOk);
  if (here->traits().cas) CHECK(try_swap(*here, server, wrong, 0) != Cause::kOk);
  check_untouched(server);
  CHECK(try_read(*here, server, server.region->key(), 0, 64) == Cause::kOk);
}

CMI_CONTRACT(a_key_opens_nothing_after_its_region_is_gone, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kBytes);
  std::memset(server.memory.data(), 0x33, kBytes);
  auto second = there->register_memory(server.memory.data(), kBytes, fabric::kRead | fabric::kWrite,
                                       random_u64(), server.endpoint.get());
  REQUIRE(second);
  const RemoteKey key = (*second)->key();
  REQUIRE(try_read(*here, server, key, 0, 64) == Cause::kOk);
  if (here->traits().cas) {
    REQUIRE(try_swap(*here, server, key, 0) == Cause::kOk);
    std::memset(server.memory.data(), 0x33, kBytes);
  }
  second->reset();
  CHECK(try_read(*here, server, key, 0, 64) != Cause::kOk);
  CHECK(try_write(*here, server, key, 0, 64) != Cause::kOk);
  if (here->traits().cas) CHECK(try_swap(*here, server, key, 0) != Cause::kOk);
  check_untouched(server);
  CHECK(try_read(*here, server, server.region->key(), 0, 64) == Cause::kOk);
}

CMI_CONTRACT(a_key_that_may_only_read_does_not_write, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kBytes, fabric::kRead);
  std::memset(server.memory.data(), 0x33, kBytes);
  for (size_t len : {size_t{1}, size_t{64}, size_t{kPageSize}, kBytes})
    CHECK(try_write(*here, server, server.region->key(), 0, len) != Cause::kOk);
  check_untouched(server);
  CHECK(try_read(*here, server, server.region->key(), 0, kBytes) == Cause::kOk);
}

CMI_CONTRACT(a_key_that_may_only_write_does_not_read, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kBytes, fabric::kWrite);
  CHECK(try_read(*here, server, server.region->key(), 0, 64) != Cause::kOk);
  CHECK(try_write(*here, server, server.region->key(), 0, 64) == Cause::kOk);
}

CMI_CONTRACT(a_swap_needs_the_rights_to_read_and_to_write, world) {
  auto there = world.open(), here = world.open();
  if (!here->traits().cas)
    return skip(
        "the implementation has no swap of 64 bits (a provider is asked by "
        "fi_compare_atomicvalid)");
  for (uint32_t rights : {fabric::kRead | fabric::kAtomic, uint32_t{fabric::kAtomic}}) {
    Server server(*there, kBytes, rights);
    Client client(*here, server.endpoint->address());
    uint64_t found = 0;
    CHECK(client.cas(&found, 0, 1, server.region->key(), 0) != Cause::kOk);
    CHECK(*server.as<volatile uint64_t>() == 0);
  }
}

CMI_CONTRACT(nothing_reaches_beyond_either_end_of_a_region, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kBytes);
  std::memset(server.memory.data(), 0x33, kBytes);
  // Only the middle two pages are registered: memory lies on both sides.
  auto middle =
      there->register_memory(server.memory.data() + kPageSize, 2 * kPageSize,
                             fabric::kRead | fabric::kWrite, random_u64(), server.endpoint.get());
  REQUIRE(middle);
  const RemoteKey key = (*middle)->key();
  const uint64_t end = 2 * kPageSize;
  struct {
    uint64_t offset;
    size_t len;
  } const outside[] = {{end, 1},
                       {end - 8, 16},
                       {end - 1, 2},
                       {0, end + 1},
                       {uint64_t(0) - 8, 8},
                       {uint64_t(0) - 8, 16},
                       {uint64_t(0) - 1, 1},
                       {uint64_t{1} << 40, 8}};
  for (auto& o : outside) {
    CAPTURE(o.offset);
    CAPTURE(o.len);
    CHECK(try_read(*here, server, key, o.offset, o.len) != Cause::kOk);
    CHECK(try_write(*here, server, key, o.offset, o.len) != Cause::kOk);
  }
  if (here->traits().cas) {
    for (const uint64_t offset : {end, uint64_t(0) - 8, end - 4, uint64_t{1} << 40}) {
      CAPTURE(offset);
      CHECK(try_swap(*here, server, key, offset) != Cause::kOk);
    }
    // One whose last word is half its own.
    auto half =
        there->register_memory(server.memory.data() + kPageSize, end - 4,
                               fabric::kRead | fabric::kWrite, random_u64(), server.endpoint.get());
    REQUIRE(half);
    CHECK(try_swap(*here, server, (*half)->key(), end - 8) != Cause::kOk);
    check_untouched(server);
    CHECK(try_swap(*here, server, (*half)->key(), end - 16) == Cause::kOk);
    std::memset(server.memory.data(), 0x33, kBytes);
  }
  check_untouched(server);
  CHECK(try_write(*here, server, key, 0, end) == Cause::kOk);
}

CMI_CONTRACT(a_key_in_use_is_not_given_twice, world) {
  auto there = world.open();
  Server server(*there, kBytes);
  const uint64_t key = server.region->key().key;
  auto again = there->register_memory(server.memory.data(), kBytes, fabric::kRead, key,
                                      server.endpoint.get());
  if (again) {
    CHECK((*again)->key().key != key);  // the provider chooses
  } else {
    CHECK(again.status() == Status::kNoMem);
  }
}

CMI_CONTRACT(a_refused_operation_does_not_disturb_other_initiators, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kBytes);
  *server.as<uint64_t>() = 7;
  RemoteKey wrong = server.region->key();
  wrong.key ^= 0x10;
  std::atomic<bool> stop{false};
  std::atomic<int> good{0}, bad{0};
  std::thread quiet([&] {
    auto mine = world.open();
    Client client(*mine, server.endpoint->address());
    while (!stop.load()) {
      uint64_t word = 0;
      const bool ok = client.read(&word, 8, server.region->key(), 0) == Cause::kOk && word == 7;
      ++(ok ? good : bad);
    }
  });
  CHECK(eventually([&] { return good.load() > 0; }));
  for (int i = 0; i < 10; ++i) {
    CHECK(try_read(*here, server, wrong, 0, 64) != Cause::kOk);
    CHECK(try_write(*here, server, wrong, 0, 64) != Cause::kOk);
    const int seen = good.load();
    CHECK(eventually([&] { return good.load() > seen; }));
  }
  stop.store(true);
  quiet.join();
  CHECK(bad.load() == 0);
}

CMI_CONTRACT(an_initiator_recovers_from_a_refusal_with_a_new_endpoint, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kBytes);
  RemoteKey wrong = server.region->key();
  wrong.key ^= 0x10;
  for (int i = 0; i < 3; ++i) {
    Client client(*here, server.endpoint->address());
    uint64_t word = 0;
    REQUIRE(client.read(&word, 8, server.region->key(), 0) == Cause::kOk);
    REQUIRE(client.read(&word, 8, wrong, 0, 2 * kSecond) != Cause::kOk);
  }
  Client client(*here, server.endpoint->address());
  uint64_t word = 0;
  CHECK(client.read(&word, 8, server.region->key(), 0) == Cause::kOk);
}

CMI_CONTRACT(an_address_that_is_none_is_not_taken, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kBytes);
  Inbox inbox;
  auto ep = here->open_endpoint(inbox);
  REQUIRE(ep);
  const Bytes good = server.endpoint->address();
  CHECK((*ep)->add_peer(good));
  CHECK(!(*ep)->add_peer({}));
  CHECK(!(*ep)->add_peer(good.first(1)));
  CHECK(!(*ep)->add_peer(good.first(good.size() - 1)));
  std::vector<std::byte> longer(good.begin(), good.end());
  longer.resize(longer.size() + 12, std::byte{1});
  CHECK(!(*ep)->add_peer(longer));
  CHECK(!(*ep)->add_peer(std::vector<std::byte>(good.size(), std::byte{0xff})));
  CHECK(!(*ep)->add_peer(std::vector<std::byte>(good.size())));
}

}  // namespace
}  // namespace cmi::test::refusal_test
