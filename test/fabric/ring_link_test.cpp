// Links and servers of one machine, whose messages go by rings in shared memory: what is sent goes
// by them and is executed once, whatever becomes of a ring.
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fabric/ring/channel.hpp"
#include "fabric/serving.hpp"
#include "fabric/world.hpp"
#include "support/party.hpp"
#include "support/sleeps.hpp"

namespace cmi::test::ring_link_test {
namespace {

using fabric::FakeNet;
using fabric::Link;
using fabric::Request;
namespace ring = fabric::ring;

// The memory of a ring as a liar may change it.
struct Memory {
  Mapping map;
  void spoil() {
    for (size_t at = 0; at < 4096; at += sizeof(uint64_t)) {
      __atomic_store_n(reinterpret_cast<uint64_t*>(map.data() + at), 0x5555555555555555,
                       __ATOMIC_RELAXED);
    }
  }
};

// Hands what is dialled to the home's server, which is in this process.
struct Dialed {
  std::atomic<int> dials{0};
  std::atomic<bool> refuses{false};
  std::atomic<bool> keeps{false};  // the home does not get it
  std::mutex mu;
  std::vector<Memory> memories;  // of the rings of requests
  ring::Channel::Passed kept;
};

class ToParty final : public ring::Dialer {
 public:
  ToParty(Party& home, Party& client, Dialed& dialed)
      : home_(home), client_(client), dialed_(dialed) {}
  bool dial(const ring::Proof& proof, ring::Channel::Passed requests,
            ring::Channel::Made notifications) override {
    dialed_.dials.fetch_add(1);
    if (dialed_.refuses.load()) return false;
    const auto size = static_cast<size_t>(::lseek(requests.memory.get(), 0, SEEK_END));
    {
      std::lock_guard g(dialed_.mu);
      dialed_.memories.push_back({Mapping(
          ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, requests.memory.get(), 0),
          size)});
      if (dialed_.keeps.load()) {
        dialed_.kept = std::move(requests);
        return true;
      }
    }
    const ring::Proof wrong{proof.client, proof.secret + 1};
    CHECK_FALSE(home_.server->take_rings(wrong, {}, {}));
    if (!home_.server->take_rings(proof, std::move(requests), std::move(notifications.passed))) {
      return false;
    }
    client_.server->hear_by_ring(home_.id, std::move(notifications.channel));
    return true;
  }

 private:
  Party& home_;
  Party& client_;
  Dialed& dialed_;
};

struct OneMachine {
  std::shared_ptr<FakeNet> net = FakeNet::make({});
  Party home{net->open()}, client{net->open()};
  Dialed dialed;
  std::unique_ptr<Link> link = client.link_to(home);
  uint64_t question = 0;

  OneMachine() {
    REQUIRE(client.server->add_home(home.id, home.listener(), client.notification_secret) ==
            Status::kOk);
  }
  void dial() { link->go_by_rings(std::make_unique<ToParty>(home, client, dialed)); }
  bool call() { return call_works(*link, ++question); }
  // Calls until one costs the network nothing.
  bool goes_by_ring() {
    return comes_true([&] {
      const uint64_t before = net->traffic().messages;
      return call() && net->traffic().messages == before;
    });
  }
  void spoil() {
    std::lock_guard g(dialed.mu);
    for (Memory& memory : dialed.memories) memory.spoil();
  }
  // When it is time for that.
  bool dials_again() {
    if (!comes_true([&] { return call() && link->dial_due(); })) return false;
    link->dial_again();
    return true;
  }
  bool once() { return home.handler.most_often() == 1; }
};

TEST_CASE("requests_and_answers_of_one_machine_go_by_a_ring") {
  OneMachine m;
  REQUIRE(m.call());
  m.dial();
  REQUIRE(m.goes_by_ring());
  const uint64_t before = m.net->traffic().messages;
  for (int i = 0; i < 200; ++i) REQUIRE(m.call());
  const Buffer large(fabric::kMaxPayload, std::byte{7});
  for (int i = 0; i < 20; ++i) REQUIRE(m.link->call(1, large, Deadline::in(kLong)));
  CHECK(m.net->traffic().messages == before);
  CHECK(m.once());
  CHECK(m.dialed.dials.load() == 1);
}

TEST_CASE("notifications_and_acknowledgements_of_one_machine_go_by_a_ring") {
  OneMachine m;
  m.dial();
  REQUIRE(m.call());
  REQUIRE(m.goes_by_ring());
  const uint64_t before = m.net->traffic().messages;
  for (uint64_t number = 1; number <= 50; ++number) {
    REQUIRE(m.home.server->notification(m.client.id, number, 9, buffer(number)));
    REQUIRE(comes_true([&] { return m.client.handler.notifications().size() == number; }));
    const Told told = m.client.handler.notifications().back();
    CHECK(told.from == m.home.id);
    CHECK(told.number == number);
    CHECK(word(told.payload) == number);
    m.client.server->ack(m.home.id, told.secret, number);
    REQUIRE(comes_true([&] { return m.home.handler.acks().size() == number; }));
    CHECK(m.home.handler.acks().back().from == m.client.id);
  }
  CHECK(m.net->traffic().messages == before);
}

TEST_CASE("what_is_under_way_when_a_ring_is_taken_is_executed_once") {
  OneMachine m;
  REQUIRE(m.call());
  m.home.handler.holding.store(true);
  std::vector<std::shared_ptr<Request>> requests;
  for (uint64_t i = 0; i < 100; ++i) {
    requests.push_back(m.link->start(7, buffer(i)));
    if (i == 50) m.dial();
    if (i % 7 == 0) m.link->advance();
  }
  REQUIRE(comes_true([&] {
    m.link->advance();
    return m.home.handler.numbers() == 101;
  }));
  m.home.handler.release();
  for (uint64_t i = 0; i < 100; ++i) {
    REQUIRE(m.link->await(requests[i], Deadline::in(kLong)) == Cause::kOk);
    CHECK(word(requests[i]->reply()) == i + 1);
  }
  CHECK(m.once());
  CHECK(m.home.handler.sessions.load() == 1);
}

TEST_CASE("a_link_goes_on_by_the_network_when_a_liar_spoils_its_ring") {
  OneMachine m;
  m.dial();
  REQUIRE(m.call());
  REQUIRE(m.goes_by_ring());
  m.spoil();
  for (int i = 0; i < 20; ++i) REQUIRE(m.call());
  CHECK(m.once());
  CHECK(m.home.handler.sessions.load() >= 2);
  const uint64_t before = m.net->traffic().messages;
  REQUIRE(m.call());
  CHECK(m.net->traffic().messages > before);
}

TEST_CASE("a_session_that_its_home_ends_goes_on_in_the_next_with_a_ring_of_its_own") {
  OneMachine m;
  m.dial();
  for (int session = 1; session <= 3; ++session) {
    REQUIRE(m.call());
    REQUIRE(m.goes_by_ring());
    CHECK(m.dialed.dials.load() == session);
    m.home.server->fence(m.client.id, false);
  }
  REQUIRE(m.call());
  CHECK(m.once());
  CHECK(m.home.handler.sessions.load() == 4);
}

TEST_CASE("a_link_whose_rings_are_not_taken_stays_with_the_network") {
  OneMachine m;
  m.dialed.keeps.store(true);
  m.dial();
  for (int i = 0; i < 20; ++i) REQUIRE(m.call());
  CHECK_FALSE(m.link->dial_due());
  CHECK(m.dialed.dials.load() == 1);
  CHECK(m.home.handler.sessions.load() == 1);
}

TEST_CASE("rings_that_cannot_be_passed_at_once_are_passed_later_in_the_same_session") {
  OneMachine m;
  REQUIRE(m.call());
  m.dialed.refuses.store(true);
  m.dial();
  for (int dials = 2; dials <= 3; ++dials) {
    REQUIRE(m.dials_again());
    CHECK(m.dialed.dials.load() == dials);
  }
  m.dialed.refuses.store(false);
  REQUIRE(m.dials_again());
  REQUIRE(m.goes_by_ring());
  CHECK_FALSE(m.link->dial_due());
  CHECK(m.dialed.dials.load() == 4);
  CHECK(m.home.handler.sessions.load() == 1);
  CHECK(m.once());
}

TEST_CASE("a_home_that_lies_before_its_first_answer_gets_no_ring_in_the_next_session") {
  OneMachine m;
  m.dialed.keeps.store(true);
  m.dial();
  for (int session = 1; session <= 3; ++session) {
    REQUIRE(m.call());
    m.spoil();
    REQUIRE(m.call());
    CHECK(m.dialed.dials.load() == 1);
    m.home.server->fence(m.client.id, false);
  }
  REQUIRE(m.call());
  CHECK(m.home.handler.sessions.load() == 4);
  CHECK(m.once());
}

// Who sleeps for the link sleeps at the ring as well, from its making on.
TEST_CASE("the_first_answer_by_a_ring_is_not_slept_over") {
  OneMachine m;
  m.dialed.keeps.store(true);
  m.dial();
  REQUIRE(m.call());
  const auto session = m.link->current();
  REQUIRE(session != nullptr);
  REQUIRE(m.dialed.kept.memory);
  auto at_home = ring::Channel::take(std::move(m.dialed.kept));
  REQUIRE(at_home);
  std::vector<int> before, after;
  CHECK(session->descriptors(&before));
  REQUIRE((*at_home)->send({fabric::FrameKind::kReply, 0, 1, 0, 0, {}}));
  REQUIRE_FALSE(before.empty());
  pollfd at_ring{before.back(), POLLIN, 0};
  CHECK(::poll(&at_ring, 1, 0) == 1);
  CHECK_FALSE(session->descriptors(&after));
}

struct NoFrames final : fabric::ServingSink {
  void on_client_frame(fabric::Serving&, const fabric::Frame&) override {}
  void on_client_ack(const fabric::Serving&, const fabric::Frame&) override {}
  void on_no_frame() override {}
};

TEST_CASE("of_a_client_whose_ring_has_ended_nothing_is_expected_there") {
  NoFrames sink;
  fabric::Serving serving(sink, ContextId{1, 2});
  CHECK_FALSE(serving.asked_by_ring());
  auto requests = ring::Channel::make(), notifications = ring::Channel::make();
  REQUIRE(requests);
  REQUIRE(notifications);
  ring::Channel& first = *requests->channel;
  serving.take_rings(std::move(requests->channel), std::move(notifications->channel));
  CHECK(serving.asked_by_ring());
  first.end("it was spoiled");
  CHECK_FALSE(serving.asked_by_ring());
}

// The one who waits is asleep, at a descriptor of the ring.
TEST_CASE("an_answer_that_takes_its_time_wakes_who_waits_for_it_by_a_ring") {
  OneMachine m;
  m.dial();
  REQUIRE(m.call());
  REQUIRE(m.goes_by_ring());
  m.home.handler.holding.store(true);
  auto request = m.link->start(7, buffer(41));
  std::thread answers([&, waiter = ::gettid()] {
    CHECK(comes_true([&] { return m.home.handler.executed(m.client.id, request->number()) == 1; }));
    CHECK(comes_true([&] { return sleeps(waiter); }));
    m.home.handler.release();
  });
  CHECK(m.link->await(request, Deadline::in(kLong)) == Cause::kOk);
  answers.join();
  CHECK(word(request->reply()) == 42);
  CHECK(m.home.handler.sessions.load() == 1);
}

}  // namespace
}  // namespace cmi::test::ring_link_test
