// Endpoints that share a completion queue: who is handed what, and what goes with one that leaves.
#include <poll.h>

#include "fabric/world.hpp"

namespace cmi::test::queue_test {
namespace {

constexpr int kMessages = 8;  // fewer than an endpoint has buffers for

// One that says "stop" to who goes on calling it after it has gone.
class Guest : public fabric::Receiver {
 public:
  explicit Guest(std::atomic<int>& late) : late_(late) {}
  ~Guest() override { gone_.store(true); }
  void on_message(Endpoint&, Bytes) override {
    if (gone_.load()) late_.fetch_add(1);
    count.fetch_add(1);
  }
  std::atomic<int> count{0};

 private:
  std::atomic<int>& late_;
  std::atomic<bool> gone_{false};
};

std::unique_ptr<Endpoint> open(Fabric& fabric, fabric::Receiver& to, Endpoint* beside = nullptr) {
  auto ep = fabric.open_endpoint(to, beside);
  REQUIRE(ok(ep.status()));
  return ep.take();
}

bool shares(const World& world) {
  return world.kind() == Kind::kNet || world.kind() == Kind::kStrict;
}

// Posts messages, which the target may have to be polled for.
template <class F>
void send_some(Client& from, std::vector<std::unique_ptr<Op>>& ops, F poll_target) {
  static const uint64_t word = 1;
  const Deadline deadline = Deadline::in(kPatience);
  for (int i = 0; i < kMessages; ++i) {
    Op& op = *ops.emplace_back(std::make_unique<Op>());
    while (from.endpoint->send(op, from.peer, &word, sizeof word) != Post::kPosted) {
      REQUIRE(!deadline.passed());
      from.endpoint->poll();
      poll_target();
    }
  }
}

// First contact: what follows is on its way without anybody's help.
void meet(Client& from, Endpoint& to, const std::atomic<int>& count) {
  const Deadline deadline = Deadline::in(kPatience);
  const uint64_t word = 0;
  Op hello;
  while (from.endpoint->send(hello, from.peer, &word, sizeof word) != Post::kPosted) {
    REQUIRE(!deadline.passed());
    from.endpoint->poll();
    to.poll();
  }
  while (count.load() == 0 || !hello.done()) {
    REQUIRE(!deadline.passed());
    from.endpoint->poll();
    to.poll();
  }
}

// Messages that nobody has handed out yet when this returns, but that are all in the hands of the
// providers.
void send_unseen(Client& from, std::vector<std::unique_ptr<Op>>& ops) {
  send_some(from, ops, [] {});
  for (int look = 0; look < 50; ++look) from.endpoint->poll();
}

// One that takes longer over a message than a poll has for all of them.
class Slow : public fabric::Receiver {
 public:
  void on_message(Endpoint&, Bytes message) override {
    const Nanos until = now() + 2 * Endpoint::kStretch;
    while (now() < until) {
    }
    uint64_t word = 0;
    std::memcpy(&word, message.data(), sizeof word);
    words += word;
    count.fetch_add(1);
  }
  std::atomic<int> count{0};
  std::atomic<uint64_t> words{0};  // the sum of what has come
};

// So whoever polls comes to look at something else, such as at heartbeats, between any two of them.
CMI_CONTRACT(a_poll_hands_out_no_more_when_what_it_has_handed_out_took_long, world) {
  auto here = world.open(), there = world.open();
  Slow slow;
  auto target = open(*here, slow);
  Client from(*there, target->address());
  meet(from, *target, slow.count);
  slow.count = 0;
  std::vector<uint64_t> words(kMessages);
  std::vector<std::unique_ptr<Op>> ops;
  const Deadline deadline = Deadline::in(kPatience);
  for (uint64_t i = 0; i < words.size(); ++i) {
    words[i] = i;
    Op& op = *ops.emplace_back(std::make_unique<Op>());
    while (from.endpoint->send(op, from.peer, &words[i], sizeof words[i]) != Post::kPosted) {
      REQUIRE(!deadline.passed());
      from.endpoint->poll();
    }
  }
  for (int look = 0; look < 50; ++look) from.endpoint->poll();
  while (slow.count < kMessages) {
    REQUIRE(!deadline.passed());
    const int before = slow.count;
    target->poll();
    CHECK(slow.count <= before + 1);
    from.endpoint->poll();
  }
  CHECK(slow.words == kMessages * (kMessages - 1) / 2);
  for (auto& op : ops) {
    while (!op->done()) {
      REQUIRE(!deadline.passed());
      from.endpoint->poll();
      target->poll();
    }
  }
}

CMI_CONTRACT(who_polls_one_of_two_with_a_queue_hands_out_what_has_come_for_either, world) {
  auto here = world.open(), there = world.open();
  Inbox first_inbox, second_inbox;
  auto first = open(*here, first_inbox);
  auto second = open(*here, second_inbox, first.get());
  REQUIRE(second->shares_queue() == shares(world));
  REQUIRE(!first->shares_queue());
  Poller poller(*first);
  std::unique_ptr<Poller> another;
  if (!second->shares_queue()) another = std::make_unique<Poller>(*second);
  Client to_first(*there, first->address()), to_second(*there, second->address());
  for (uint64_t i = 1; i <= 3; ++i) {
    const uint64_t word = 2 * i;
    CHECK(to_first.send(&i, sizeof i) == Cause::kOk);
    CHECK(to_second.send(&word, sizeof word) == Cause::kOk);
  }
  CHECK(eventually([&] { return first_inbox.count() == 3 && second_inbox.count() == 3; }));
  for (uint64_t i = 1; i <= 3; ++i) {
    uint64_t word;
    std::memcpy(&word, first_inbox.at(i - 1).data(), sizeof word);
    CHECK(word == i);
    std::memcpy(&word, second_inbox.at(i - 1).data(), sizeof word);
    CHECK(word == 2 * i);
  }
}

CMI_CONTRACT(what_one_with_a_queue_takes_along_when_it_leaves_is_its_own_and_nothing_else, world) {
  auto here = world.open(), there = world.open();
  std::atomic<int> late{0};
  std::vector<std::unique_ptr<Op>> ops;  // outlive the clients
  Guest stays(late);
  auto listener = open(*here, stays);
  Client to_listener(*there, listener->address());
  meet(to_listener, *listener, stays.count);
  for (int round = 1; round <= 5; ++round) {
    auto leaves = std::make_unique<Guest>(late);
    auto guest = open(*here, *leaves, listener.get());
    Client to_guest(*there, guest->address());
    meet(to_guest, *guest, leaves->count);
    const int had = stays.count.load();
    send_unseen(to_listener, ops);
    send_unseen(to_guest, ops);
    guest.reset();
    CHECK(leaves->count.load() == 1);
    leaves.reset();
    // Nobody is left asleep by what was found for the one that stays.
    const Deadline deadline = Deadline::in(kPatience);
    while (stays.count.load() < had + kMessages) {
      REQUIRE(!deadline.passed());
      if (listener->wait_fd() >= 0 && listener->may_sleep()) {
        pollfd p{listener->wait_fd(), POLLIN, 0};
        CHECK(::poll(&p, 1, 1000) == 1);
      }
      listener->poll();
      to_listener.endpoint->poll();
    }
    CHECK(stays.count.load() == had + kMessages);
  }
  CHECK(late.load() == 0);
}

CMI_CONTRACT(one_with_a_queue_may_leave_while_others_hand_out_what_comes_for_it, world) {
  auto here = world.open(), there = world.open();
  std::atomic<int> late{0};
  Guest stays(late);
  auto listener = open(*here, stays);
  Poller first(*listener), second(*listener);
  for (int round = 0; round < 20; ++round) {
    auto leaves = std::make_unique<Guest>(late);
    auto guest = open(*here, *leaves, listener.get());
    // What posts at the one that leaves, too: its operations end with it.
    std::vector<std::unique_ptr<Op>> ops;
    Client client(*there, guest->address());
    auto back = guest->add_peer(client.endpoint->address());
    REQUIRE(ok(back.status()));
    const auto poll_guest = [&] {
      if (!guest->shares_queue()) guest->poll();
    };
    send_some(client, ops, poll_guest);
    static const uint64_t word = 2;
    for (int i = 0; i < kMessages; ++i) {
      ops.push_back(std::make_unique<Op>());
      (void)guest->send(*ops.back(), *back, &word, sizeof word);
    }
    const Deadline soon = Deadline::in(round % 4 * kMilli);
    while (!soon.passed()) {
      client.endpoint->poll();
      poll_guest();
    }
    guest.reset();
    leaves.reset();
  }
  CHECK(late.load() == 0);
}

// Whoever is told of one thing may close who is told of another, as a fence does.
class Closer : public fabric::Receiver {
 public:
  void on_message(Endpoint&, Bytes) override {
    count.fetch_add(1);
    if (armed) victim.reset();
  }
  std::unique_ptr<Endpoint> victim;
  std::atomic<int> count{0};
  bool armed = false;
};

CMI_CONTRACT(one_with_a_queue_may_be_closed_by_who_is_handed_something_of_another, world) {
  auto here = world.open(), there = world.open();
  std::atomic<int> late{0};
  std::vector<std::unique_ptr<Op>> ops;
  auto leaves = std::make_unique<Guest>(late);
  Closer closer;
  auto listener = open(*here, closer);
  closer.victim = open(*here, *leaves, listener.get());
  Client to_guest(*there, closer.victim->address()), to_listener(*there, listener->address());
  meet(to_guest, *closer.victim, leaves->count);
  meet(to_listener, *listener, closer.count);
  send_unseen(to_listener, ops);
  send_unseen(to_guest, ops);
  closer.armed = true;
  const Deadline deadline = Deadline::in(kPatience);
  while (closer.count.load() < 1 + kMessages) {
    REQUIRE(!deadline.passed());
    to_listener.endpoint->poll();
    listener->poll();
  }
  CHECK(closer.victim == nullptr);
  CHECK(leaves->count.load() == 1);
  for (int look = 0; look < 50; ++look) listener->poll();
  CHECK(leaves->count.load() == 1);
  leaves.reset();
  CHECK(late.load() == 0);
}

}  // namespace
}  // namespace cmi::test::queue_test
