// Contract: bytes moved by reads, writes, compare-and-swaps and messages are the right ones.
#include <set>

#include "fabric/world.hpp"
#include "support/skip.hpp"

namespace cmi::test::transfer_test {
namespace {

constexpr size_t kSizes[] = {1,    7,    8,     63,    64,      65,           4095,
                             4096, 4097, 65536, 65537, 1 << 20, (5 << 20) + 3};
constexpr size_t kServed = 8 << 20;

CMI_CONTRACT(reads_and_writes_of_every_size_carry_their_bytes, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kServed);
  Client client(*here, server.endpoint->address());
  std::vector<std::byte> back(kServed);
  uint64_t seed = 0;
  for (size_t len : kSizes) {
    for (size_t offset : {size_t{0}, size_t{4099}}) {
      CAPTURE(len);
      CAPTURE(offset);
      const std::vector<std::byte> out = pattern(len, ++seed);
      std::memset(server.memory.data(), 0xee, kServed);
      REQUIRE(client.write(out.data(), len, server.region->key(), offset) == Cause::kOk);
      CHECK(std::memcmp(server.memory.data() + offset, out.data(), len) == 0);
      CHECK(server.memory.data()[offset + len] == std::byte{0xee});
      if (offset > 0) CHECK(server.memory.data()[offset - 1] == std::byte{0xee});
      std::fill(back.begin(), back.end(), std::byte{0x55});
      REQUIRE(client.read(back.data(), len, server.region->key(), offset) == Cause::kOk);
      CHECK(std::memcmp(back.data(), out.data(), len) == 0);
      CHECK(back[len] == std::byte{0x55});
    }
  }
}

CMI_CONTRACT(a_write_that_is_done_lies_in_the_targets_memory, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kPageSize * 64);
  Client client(*here, server.endpoint->address());
  std::vector<uint64_t> words(kPageSize * 8);
  for (uint64_t round = 1; round <= 300; ++round) {
    const size_t len = round % 3 == 0 ? words.size() * 8 : round % 3 == 1 ? 8 : kPageSize;
    std::fill(words.begin(), words.end(), round);
    REQUIRE(client.write(words.data(), len, server.region->key(), 0) == Cause::kOk);
    const auto* seen = server.as<volatile uint64_t>();
    REQUIRE(seen[0] == round);
    REQUIRE(seen[len / 8 - 1] == round);
  }
}

CMI_CONTRACT(many_operations_in_flight_all_complete_with_their_own_bytes, world) {
  auto there = world.open(), here = world.open();
  constexpr size_t kOps = 1000, kEach = 128;
  Server server(*there, kOps * kEach);
  for (size_t i = 0; i < kOps; ++i) *server.as<uint64_t>(i * kEach) = i;
  Client client(*here, server.endpoint->address());
  std::vector<std::unique_ptr<Op>> ops;
  std::vector<uint64_t> got(kOps, UINT64_MAX);
  const Deadline deadline = Deadline::in(kPatience);
  for (size_t i = 0; i < kOps; ++i) {
    ops.push_back(std::make_unique<Op>());
    while (client.endpoint->read(*ops[i], client.peer, &got[i], 8, server.region->key(),
                                 i * kEach) == Post::kAgain) {
      REQUIRE(!deadline.passed());
      client.endpoint->poll();
    }
    REQUIRE((ops[i]->in_flight() || ops[i]->done()));
  }
  for (size_t i = 0; i < kOps; ++i) {
    REQUIRE(client.endpoint->wait(*ops[i], deadline) == Cause::kOk);
    REQUIRE(got[i] == i);
  }
}

CMI_CONTRACT(a_short_message_that_is_injected_is_copied_and_arrives, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kPageSize);
  Client client(*here, server.endpoint->address());
  const std::vector<std::byte> first = pattern(48, 0);
  REQUIRE(client.send(first.data(), first.size()) == Cause::kOk);
  for (uint64_t i = 1; i <= 300; ++i) {
    std::vector<std::byte> message = pattern(48, i);
    REQUIRE(eventually([&] {
      if (client.endpoint->inject(client.peer, message.data(), message.size())) return true;
      client.endpoint->poll();
      return false;
    }));
    std::fill(message.begin(), message.end(), std::byte{0xee});
  }
  REQUIRE(eventually([&] { return client.endpoint->poll(), server.inbox.count() == 301; }));
  std::set<std::vector<std::byte>> sent, arrived;  // in which order is the provider's
  for (uint64_t i = 0; i <= 300; ++i) {
    sent.insert(pattern(48, i));
    arrived.insert(server.inbox.at(i));
  }
  CHECK(arrived == sent);
  const std::vector<std::byte> whole(fabric::kMaxMessage);
  CHECK_FALSE(client.endpoint->inject(client.peer, whole.data(), whole.size()));
}

CMI_CONTRACT(a_callback_runs_once_and_its_op_can_be_used_again, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kPageSize);
  Client client(*here, server.endpoint->address());
  std::atomic<int> calls{0};
  Op op([](Op& o) { static_cast<std::atomic<int>*>(o.user)->fetch_add(1); }, &calls);
  uint64_t word = 0;
  for (int i = 1; i <= 50; ++i) {
    const Deadline deadline = Deadline::in(kPatience);
    while (client.endpoint->read(op, client.peer, &word, 8, server.region->key(), 0) ==
           Post::kAgain) {
      REQUIRE(!deadline.passed());
      client.endpoint->poll();
    }
    REQUIRE(client.endpoint->wait(op, deadline) == Cause::kOk);
    CHECK(calls.load() == i);
  }
}

CMI_CONTRACT(compare_and_swap_is_exact_among_two_initiators_and_the_targets_cpu, world) {
  auto there = world.open(), here = world.open();
  if (!here->traits().cas)
    return skip(
        "the implementation has no swap of 64 bits (a provider is asked by "
        "fi_compare_atomicvalid)");
  Server server(*there, kPageSize);
  auto* word = server.as<uint64_t>(64);
  constexpr uint64_t kRemote = 400, kLocal = 20000;
  std::atomic<uint64_t> done{0};
  auto initiator = [&] {
    auto mine = world.open();
    Client client(*mine, server.endpoint->address());
    uint64_t guess = 0, successes = 0;
    while (successes < kRemote) {
      uint64_t found = 0;
      if (client.cas(&found, guess, guess + 1, server.region->key(), 64) != Cause::kOk) return;
      if (found == guess) ++successes;
      guess = found == guess ? guess + 1 : found;
    }
    done += successes;
  };
  std::thread a(initiator), b(initiator);
  for (uint64_t i = 0; i < kLocal; ++i) {
    __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
    if (i % 64 == 0) std::this_thread::yield();
  }
  a.join();
  b.join();
  CHECK(done.load() == 2 * kRemote);
  CHECK(__atomic_load_n(word, __ATOMIC_SEQ_CST) == 2 * kRemote + kLocal);
}

CMI_CONTRACT(a_failing_compare_and_swap_tells_what_is_there_and_changes_nothing, world) {
  auto there = world.open(), here = world.open();
  if (!here->traits().cas)
    return skip(
        "the implementation has no swap of 64 bits (a provider is asked by "
        "fi_compare_atomicvalid)");
  Server server(*there, kPageSize);
  *server.as<uint64_t>(8) = 42;
  Client client(*here, server.endpoint->address());
  uint64_t found = 0;
  REQUIRE(client.cas(&found, 41, 43, server.region->key(), 8) == Cause::kOk);
  CHECK(found == 42);
  CHECK(*server.as<volatile uint64_t>(8) == 42);
  REQUIRE(client.cas(&found, 42, 43, server.region->key(), 8) == Cause::kOk);
  CHECK(found == 42);
  CHECK(*server.as<volatile uint64_t>(8) == 43);
}

CMI_CONTRACT(messages_of_every_length_arrive_whole, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kPageSize);
  Client client(*here, server.endpoint->address());
  size_t expected = 0;
  const size_t most = here->traits().max_message;
  REQUIRE(most >= fabric::kMaxMessage);
  for (size_t len : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{129},
                     size_t{4096}, size_t{16385}, most - 1, most}) {
    CAPTURE(len);
    const std::vector<std::byte> out = pattern(len, len);
    REQUIRE(client.send(out.data(), len) == Cause::kOk);
    ++expected;
    REQUIRE(eventually([&] {
      client.endpoint->poll();
      return server.inbox.count() >= expected;
    }));
    CHECK(server.inbox.at(expected - 1) == out);
  }
  CHECK(server.inbox.count() == expected);
}

CMI_CONTRACT(a_burst_of_messages_arrives_exactly_once_each, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kPageSize);
  Client client(*here, server.endpoint->address());
  constexpr size_t kMessages = 2000;  // more than any queue holds
  std::vector<std::unique_ptr<Op>> ops;
  std::vector<std::vector<std::byte>> out;
  const Deadline deadline = Deadline::in(kPatience);
  for (size_t i = 0; i < kMessages; ++i) {
    out.push_back(pattern(16 + i % 3000, i));
    std::memcpy(out.back().data(), &i, sizeof i);
    ops.push_back(std::make_unique<Op>());
    while (client.endpoint->send(*ops[i], client.peer, out[i].data(), out[i].size()) ==
           Post::kAgain) {
      REQUIRE(!deadline.passed());
      client.endpoint->poll();
    }
  }
  for (auto& op : ops) REQUIRE(client.endpoint->wait(*op, deadline) == Cause::kOk);
  REQUIRE(eventually([&] {
    client.endpoint->poll();
    return server.inbox.count() >= kMessages;
  }));
  std::set<size_t> seen;
  for (size_t k = 0; k < kMessages; ++k) {
    const std::vector<std::byte> m = server.inbox.at(k);
    size_t i = 0;
    REQUIRE(m.size() >= sizeof i);
    std::memcpy(&i, m.data(), sizeof i);
    REQUIRE(i < kMessages);
    REQUIRE(seen.insert(i).second);
    REQUIRE(m == out[i]);
  }
  CHECK(server.inbox.count() == kMessages);
}

CMI_CONTRACT(a_message_is_never_seen_before_the_writes_posted_ahead_of_it, world) {
  auto there = world.open(), here = world.open();
  if (!here->traits().ordered_after_write)
    return skip("the implementation does not promise this order (FI_ORDER_SAW of a provider)");
  Server server(*there, 1 << 20);
  // Looks at the end of the written range in the moment the message comes.
  struct Witness final : fabric::Receiver {
    volatile uint64_t* last = nullptr;
    std::atomic<int> seen{0}, early{0};
    void on_message(Endpoint&, Bytes m) override {
      uint64_t round = 0;
      std::memcpy(&round, m.data(), sizeof round);
      if (*last != round) early++;
      seen++;
    }
  } witness;
  witness.last = server.as<uint64_t>((1 << 20) - 8);
  auto ep = there->open_endpoint(witness);
  REQUIRE(ep);
  Poller poller(**ep);
  Client client(*here, (*ep)->address());
  std::vector<uint64_t> words((1 << 20) / 8);
  for (uint64_t round = 1; round <= 30; ++round) {
    std::fill(words.begin(), words.end(), round);
    const Deadline deadline = Deadline::in(kPatience);
    Op write, message;
    while (client.endpoint->write(write, client.peer, words.data(), 1 << 20, server.region->key(),
                                  0) == Post::kAgain) {
      REQUIRE(!deadline.passed());
      client.endpoint->poll();
    }
    while (client.endpoint->send(message, client.peer, &round, sizeof round) == Post::kAgain) {
      REQUIRE(!deadline.passed());
      client.endpoint->poll();
    }
    REQUIRE(client.endpoint->wait(write, deadline) == Cause::kOk);
    REQUIRE(client.endpoint->wait(message, deadline) == Cause::kOk);
    REQUIRE(eventually([&] { return witness.seen.load() == static_cast<int>(round); }));
  }
  CHECK(witness.early.load() == 0);
}

CMI_CONTRACT(a_receiver_may_answer_from_within_its_call, world) {
  struct Echo final : fabric::Receiver {
    Peer back{};
    std::vector<std::unique_ptr<Op>> ops;  // only the poller's thread comes here
    std::vector<std::vector<std::byte>> out;
    void on_message(Endpoint& ep, Bytes m) override {
      ops.push_back(std::make_unique<Op>());
      out.emplace_back(m.begin(), m.end());
      while (ep.send(*ops.back(), back, out.back().data(), m.size()) == Post::kAgain) ep.poll();
    }
  } echo;
  auto there = world.open(), here = world.open();
  auto ep = there->open_endpoint(echo);
  REQUIRE(ep);
  Client client(*here, (*ep)->address());
  auto back = (*ep)->add_peer(client.endpoint->address());
  REQUIRE(back);
  echo.back = *back;
  {
    Poller poller(**ep);
    for (size_t i = 1; i <= 100; ++i) {
      REQUIRE(client.send(&i, sizeof i) == Cause::kOk);
      REQUIRE(eventually([&] {
        client.endpoint->poll();
        return client.inbox.count() == i;
      }));
      size_t got = 0;
      std::memcpy(&got, client.inbox.at(i - 1).data(), sizeof got);
      CHECK(got == i);
    }
  }
  ep->reset();  // before what it may still be sending from
}

CMI_CONTRACT(threads_that_wait_on_one_endpoint_all_get_their_operations, world) {
  auto there = world.open(), here = world.open();
  Server server(*there, kPageSize * 4);
  for (size_t i = 0; i < 4; ++i) *server.as<uint64_t>(i * kPageSize) = i + 1;
  Client client(*here, server.endpoint->address());
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 500; ++round) {
        Op op;
        uint64_t word = 0;
        const Deadline deadline = Deadline::in(kPatience);
        while (client.endpoint->read(op, client.peer, &word, 8, server.region->key(),
                                     i * kPageSize) == Post::kAgain) {
          if (deadline.passed()) return;
          client.endpoint->poll();
        }
        if (client.endpoint->wait(op, deadline) != Cause::kOk || word != i + 1) return;
      }
      ++good;
    });
  }
  for (std::thread& t : threads) t.join();
  CHECK(good.load() == 4);
}

}  // namespace
}  // namespace cmi::test::transfer_test
