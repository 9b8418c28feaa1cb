// Ports: what is sent and forgotten, over connections that break.
#include "fabric/port.hpp"

#include "fabric/world.hpp"
#include "support/party.hpp"

namespace cmi::test::port_test {
namespace {

using fabric::FakeNet;

// A port and whom it sends to.
struct Line {
  explicit Line(const fabric::FakeModes& modes = {}) : net(FakeNet::make(modes)) {
    REQUIRE(there);
    REQUIRE(port);
    add();
  }
  void add() {
    const auto added = (*port)->add((*there)->address());
    REQUIRE(added);
    peer = *added;
  }
  void send(const fabric::Frame& frame, bool last = false) { (*port)->send(peer, frame, last); }
  void reset() { net->reset((*port)->endpoint().address(), (*there)->address()); }
  void turn() {
    (*port)->pump();
    (*port)->endpoint().poll();
    (*there)->poll();
  }
  // So many have arrived, of all.
  bool arrive(size_t n) {
    return comes_true([&] {
      turn();
      return inbox.count() == n;
    });
  }

  std::shared_ptr<FakeNet> net;
  std::unique_ptr<fabric::Fabric> fabric = net->open();
  Inbox inbox, ignored;
  Result<std::unique_ptr<fabric::Endpoint>> there = fabric->open_endpoint(inbox, nullptr);
  Result<std::unique_ptr<fabric::Port>> port = fabric::Port::open(*fabric, ignored);
  fabric::Peer peer{};
};

// Of a connection that breaks: a send buffer hears of it and is sent again, what was injected is
// gone.
TEST_CASE("what_is_short_goes_without_a_send_buffer_once_its_peer_was_reached_but_for_requests") {
  for (const bool requests : {false, true}) {
    CAPTURE(requests);
    Line line;
    if (!requests) (*line.port)->limit_backlog();
    const auto send_and_break = [&](size_t payload) {
      const std::vector<std::byte> bytes(payload);
      line.send({fabric::FrameKind::kReply, 0, 0, 1, 0, bytes});
      line.reset();
    };
    send_and_break(8);  // the first, short as it is
    REQUIRE(line.arrive(1));
    send_and_break(500);
    REQUIRE(line.arrive(2));
    send_and_break(8);
    send_and_break(500);  // behind it, and sees that nothing is left before it
    CHECK(line.arrive(requests ? 4 : 3));
    CHECK((line.inbox.at(2).size() > 500) == !requests);
  }
}

// A provider's queue may have no end: what goes to who does not read waits here, where it is
// counted. Of a connection that breaks then what was injected is gone, and only that.
TEST_CASE("what_is_injected_to_who_does_not_read_is_bounded") {
  constexpr size_t kSent = 500, kInjected = 64;
  fabric::FakeModes endless;
  endless.queue = SIZE_MAX;
  Line line(endless);
  (*line.port)->limit_backlog();
  const auto send = [&] { line.send({fabric::FrameKind::kReply, 0, 0, 1, 0, {}}); };
  send();
  REQUIRE(line.arrive(1));
  (*line.port)->endpoint().poll();
  for (size_t i = 0; i < kSent; ++i) send();
  line.reset();
  REQUIRE(line.arrive(1 + kSent - kInjected));
  // He reads: it goes on as before, for longer than a bound that is never lifted would let it.
  for (size_t i = 0; i < kSent; ++i) {
    send();
    REQUIRE(line.arrive(2 + kSent - kInjected + i));
  }
  // And some of what goes then is injected: not all of it comes when the connection breaks, though
  // a send buffer behind it does.
  for (size_t i = 0; i < kInjected; ++i) send();
  line.reset();
  // The send buffers among them wait now, and what is behind waits for them.
  while ((*line.port)->endpoint().poll() > 0) {
  }
  line.send({fabric::FrameKind::kWelcome, 0, 0, 1, 0, {}}, true);
  REQUIRE(comes_true([&] {
    line.turn();
    fabric::Frame last;
    return fabric::decode_frame(line.inbox.at(line.inbox.count() - 1), &last) &&
           last.kind == fabric::FrameKind::kWelcome;
  }));
  CHECK(line.inbox.count() < 2 + 2 * kSent);
}

// A peer that is removed is let go of when all send buffers to it have gone; of what was injected
// nobody knows.
TEST_CASE("what_is_sent_last_to_a_peer_is_not_lost_when_it_is_removed") {
  for (const bool last : {false, true}) {
    CAPTURE(last);
    Line line;
    (*line.port)->limit_backlog();
    const auto send = [&](uint64_t number, bool is_last) {
      line.send({fabric::FrameKind::kNotification, 0, 0, number, 0, {}}, is_last);
    };
    send(1, false);
    REQUIRE(line.arrive(1));
    line.turn();  // the send buffer is back
    send(2, last);
    (*line.port)->remove(line.peer);
    // Behind whatever is still on its way.
    line.add();
    send(3, true);
    CHECK(line.arrive(last ? 3 : 2));
    line.turn();
    CHECK(line.inbox.count() == (last ? 3 : 2));
  }
}

}  // namespace
}  // namespace cmi::test::port_test
