// What providers may ask of who uses them, one by one: each mode played by a provider that insists
// on it (fabric/fake/provider.hpp), and each way of promising more than it keeps, found by trying.
#include <rdma/fi_domain.h>

#include "core/base/log.hpp"
#include "fabric/split.hpp"
#include "fabric/world.hpp"
#include "support/skip.hpp"

namespace cmi::test::modes_test {
namespace {

using fabric::FakeProvider;
using fabric::ProviderModes;

constexpr size_t kBytes = 16 * kPageSize;

// The whole contract in short, between two nodes of a provider with these modes.
void works(const ProviderModes& modes) {
  auto provider = FakeProvider::make(modes);
  auto there = provider->open(), here = provider->open();
  REQUIRE(there);
  REQUIRE(here);
  CHECK((*there)->traits().cas == modes.atomics);
  CHECK((*there)->traits().wait_fd == modes.wait_fd);
  CHECK((*there)->traits().ordered_after_write == modes.ordered);
  Server server(**there, kBytes);
  const auto key = (*here)->map_key(server.region->key(), server.region->raw_key());
  REQUIRE(key);
  {
    Client client(**here, server.endpoint->address());
    const std::vector<std::byte> out = pattern(3 * kPageSize + 5, 1);
    std::vector<std::byte> in(out.size());
    CHECK(client.write(out.data(), out.size(), *key, 77) == Cause::kOk);
    CHECK(std::memcmp(server.memory.data() + 77, out.data(), out.size()) == 0);
    CHECK(client.read(in.data(), in.size(), *key, 77) == Cause::kOk);
    CHECK(in == out);
    if (modes.atomics) {
      *server.as<uint64_t>(8) = 42;
      uint64_t found = 0;
      CHECK(client.cas(&found, 42, 43, *key, 8) == Cause::kOk);
      CHECK(found == 42);
      CHECK(*server.as<volatile uint64_t>(8) == 43);
    }
    for (size_t len : {size_t{1}, size_t{200}, fabric::kMaxMessage}) {
      const std::vector<std::byte> message = pattern(len, len);
      const size_t before = server.inbox.count();
      REQUIRE(client.send(message.data(), len) == Cause::kOk);
      REQUIRE(eventually([&] { return client.endpoint->poll(), server.inbox.count() > before; }));
      CHECK(server.inbox.at(before) == message);
    }
  }
  std::memset(server.memory.data(), 0x33, kBytes);
  const auto refused = [&](RemoteKey with, uint64_t offset) {
    Client rogue(**here, server.endpoint->address());
    uint64_t word = 7;
    const bool read = rogue.read(&word, 8, with, offset, kSecond) == Cause::kOk;
    Client other(**here, server.endpoint->address());
    const uint64_t evil = 0x9999999999999999;
    return !read && word == 7 && other.write(&evil, 8, with, offset, kSecond) != Cause::kOk;
  };
  RemoteKey wrong = *key;
  wrong.key ^= 4;
  CHECK(refused(wrong, 0));
  CHECK(refused(*key, kBytes - 4));
  CHECK(refused(*key, ~uint64_t{0} - 3));
  server.region.reset();
  CHECK(refused(*key, 0));
  for (size_t i = 0; i < kBytes; ++i) REQUIRE(server.memory.data()[i] == std::byte{0x33});
}

constexpr int kAllModes =
    FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

ProviderModes with(int mr_mode, size_t key_size = 8) {
  ProviderModes modes;
  modes.mr_mode = mr_mode;
  modes.key_size = key_size;
  return modes;
}

TEST_CASE("a_provider_that_asks_for_nothing_works") { works({}); }
TEST_CASE("local_buffers_are_registered_where_the_provider_wants_it") { works(with(FI_MR_LOCAL)); }
TEST_CASE("virtual_addresses_are_used_where_the_provider_wants_them") {
  works(with(FI_MR_VIRT_ADDR | FI_MR_ALLOCATED));
}
TEST_CASE("keys_are_the_providers_where_it_wants_that") { works(with(FI_MR_PROV_KEY)); }
TEST_CASE("keys_of_four_bytes_work") {
  works(with(0, 4));
  works(with(FI_MR_PROV_KEY, 4));
}
TEST_CASE("keys_longer_than_64_bits_work") {
  works(with(FI_MR_RAW, 24));
  works(with(FI_MR_RAW | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_LOCAL, fabric::kMaxRawKey));
}
TEST_CASE("regions_are_bound_to_an_endpoint_where_the_provider_wants_that") {
  works(with(FI_MR_ENDPOINT));
  works(with(FI_MR_ENDPOINT, 4));
  works(with(FI_MR_ENDPOINT | FI_MR_PROV_KEY | FI_MR_ALLOCATED));
  works(with(FI_MR_ENDPOINT | FI_MR_LOCAL));
}
TEST_CASE("all_modes_of_registration_together_work") {
  works(with(kAllModes, 4));
  works(with(kAllModes | FI_MR_RAW, 24));
}
TEST_CASE("automatic_progress_works") {
  ProviderModes modes;
  modes.automatic = true;
  works(modes);
}
TEST_CASE("a_provider_without_a_descriptor_works") {
  ProviderModes modes;
  modes.wait_fd = false;
  works(modes);
}
TEST_CASE("a_provider_without_atomics_works") {
  ProviderModes modes;
  modes.atomics = false;
  works(modes);
}
TEST_CASE("a_provider_that_injects_little_or_nothing_works") {
  for (size_t inject : {size_t{0}, size_t{1}, size_t{64}}) {
    CAPTURE(inject);
    ProviderModes modes;
    modes.inject_size = inject;
    works(modes);
  }
}
TEST_CASE("long_reads_and_writes_work_where_the_providers_operations_are_short") {
  for (int mr_mode : {0, kAllModes}) {
    CAPTURE(mr_mode);
    ProviderModes modes = with(mr_mode);
    modes.max_message = fabric::kMaxMessage;
    works(modes);
    auto provider = FakeProvider::make(modes);
    auto plain = provider->open(), other = provider->open();
    REQUIRE(plain);
    REQUIRE(other);
    CHECK((*plain)->traits().max_rma == modes.max_message);
    const auto there = fabric::with_whole_operations(plain.take());
    const auto here = fabric::with_whole_operations(other.take());
    CHECK(here->traits().max_rma == fabric::kWholeRma);
    constexpr size_t kLong = size_t{1} << 20;
    Server server(*there, kLong);
    Client client(*here, server.endpoint->address());
    const std::vector<std::byte> out = pattern(kLong, 1);
    std::vector<std::byte> in(kLong);
    REQUIRE(client.write(out.data(), kLong, server.region->key(), 0) == Cause::kOk);
    CHECK(std::memcmp(server.memory.data(), out.data(), kLong) == 0);
    REQUIRE(client.read(in.data(), kLong, server.region->key(), 0) == Cause::kOk);
    CHECK(in == out);
  }
}
TEST_CASE("memory_that_is_not_mapped_is_not_registered_where_the_provider_asks_for_allocated") {
  auto f = FakeProvider::make(with(FI_MR_ALLOCATED))->open();
  REQUIRE(f);
  void* at =
      mmap(nullptr, 3 * kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(at != MAP_FAILED);
  const Mapping memory(at, 3 * kPageSize);
  CHECK((*f)->register_memory(memory.data() + 8, 2 * kPageSize, fabric::kRead, 1));
  REQUIRE(munmap(memory.data() + kPageSize, kPageSize) == 0);
  CHECK(!(*f)->register_memory(memory.data() + 8, 2 * kPageSize, fabric::kRead, 1));
}
TEST_CASE("a_provider_that_orders_nothing_works") {
  ProviderModes modes;
  modes.ordered = false;
  works(modes);
}

TEST_CASE("a_bound_key_opens_its_memory_at_its_own_endpoint_only") {
  for (int mr_mode : {FI_MR_ENDPOINT, kAllModes}) {
    CAPTURE(mr_mode);
    auto provider = FakeProvider::make(with(mr_mode));
    auto there = provider->open(), here = provider->open();
    REQUIRE(there);
    REQUIRE(here);
    Server server(**there, kBytes), other(**there, kBytes);
    std::memset(server.memory.data(), 0x33, kBytes);
    const RemoteKey key = server.region->key();
    uint64_t word = 7;
    Client rogue(**here, other.endpoint->address());
    CHECK(rogue.read(&word, 8, key, 0, kSecond) != Cause::kOk);
    CHECK(rogue.write(&word, 8, key, 0, kSecond) != Cause::kOk);
    CHECK(word == 7);
    CHECK(*server.as<uint64_t>() == 0x3333333333333333);
    Client client(**here, server.endpoint->address());
    CHECK(client.read(&word, 8, key, 0) == Cause::kOk);
    CHECK(word == 0x3333333333333333);
  }
}

TEST_CASE("a_bound_region_cannot_be_had_without_an_endpoint") {
  auto f = FakeProvider::make(with(FI_MR_ENDPOINT))->open();
  REQUIRE(f);
  uint64_t word = 0;
  CHECK((*f)->register_memory(&word, 8, fabric::kRead, 1).status() == Status::kInval);
}

// The provider keeps an endpoint open that something is bound to: who is told "again" for good has
// nobody at the other end.
TEST_CASE("an_endpoint_closes_though_regions_are_bound_to_it_and_closes_these") {
  for (int mr_mode : {FI_MR_ENDPOINT, kAllModes}) {
    CAPTURE(mr_mode);
    auto provider = FakeProvider::make(with(mr_mode));
    auto there = provider->open(), here = provider->open();
    REQUIRE(there);
    REQUIRE(here);
    auto server = std::make_unique<Server>(**there, kBytes);
    uint64_t word = 7;
    Client client(**here, server->endpoint->address());
    const RemoteKey key = server->region->key();
    REQUIRE(client.read(&word, 8, key, 0) == Cause::kOk);
    // For a region that outlives its endpoint, as a session's key may.
    auto region = std::move(server->region);
    const Mapping memory = std::move(server->memory);
    server.reset();
    Op op;
    CHECK(client.endpoint->read(op, client.peer, &word, 8, key, 0) == Post::kAgain);
    // The same key may be had again, where they are of our choosing: it is closed.
    Server again(**there, kBytes);
    if (mr_mode == FI_MR_ENDPOINT) {
      CHECK((*there)
                ->register_memory(memory.data(), 8, fabric::kRead, key.key, again.endpoint.get())
                .status() == Status::kOk);
    }
    Client rogue(**here, again.endpoint->address());
    CHECK(rogue.read(&word, 8, key, 8, kSecond) != Cause::kOk);
    region.reset();
  }
}

TEST_CASE("a_raw_key_is_taken_only_where_keys_are_such") {
  auto plain = FakeProvider::make({})->open();
  auto raw = FakeProvider::make(with(FI_MR_RAW, 24))->open();
  REQUIRE(plain);
  REQUIRE(raw);
  const std::vector<std::byte> key(24, std::byte{1});
  CHECK((*plain)->map_key({5, 0}, {}));
  CHECK(!(*plain)->map_key({5, 0}, key));
  CHECK(!(*raw)->map_key({5, 0}, {}));
  CHECK(!(*raw)->map_key({5, 0}, Bytes(key).first(23)));
}

TEST_CASE("a_provider_whose_closed_keys_still_open_something_is_not_used") {
  ProviderModes modes;
  modes.keeps_closed_keys = true;
  auto f = FakeProvider::make(modes)->open();
  CHECK(!f);
  CHECK(f.status() == Status::kNotSupp);
}

TEST_CASE("atomics_that_are_advertised_and_do_not_work_are_not_used") {
  ProviderModes modes;
  modes.lies_about_atomics = true;
  auto f = FakeProvider::make(modes)->open();
  REQUIRE(f);
  CHECK(!(*f)->traits().cas);
}

TEST_CASE("a_provider_whose_messages_are_too_small_is_not_used") {
  ProviderModes modes;
  modes.max_message = fabric::kMaxMessage - 1;
  auto f = FakeProvider::make(modes)->open();
  CHECK(!f);
  CHECK(f.status() == Status::kNotSupp);
}

}  // namespace
}  // namespace cmi::test::modes_test
