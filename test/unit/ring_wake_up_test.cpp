// A ring whose wake-up the kernel has no memory for.
#include <doctest/doctest.h>
#include <poll.h>

#include <cstdlib>
#include <utility>

#include "core/base/fault_point.hpp"
#include "fabric/fabric.hpp"
#include "fabric/ring/channel.hpp"

namespace cmi::test::ring_wake_up_test {
using namespace cmi::fabric;
using ring::Channel;

namespace {
struct Counting : ring::ChannelSink {
  int messages = 0;
  void on_ring_message(Channel&, Bytes) override { ++messages; }
};

Frame frame(uint64_t number) { return {FrameKind::kRequest, 3, 4, number, 5, {}}; }

bool readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}

bool send_without_memory(Channel& channel, const Frame& f) {
  setenv("CMI_FAULT_POINT", "ring_wake_up_lost=fail", 1);
  arm_fault_points();
  const bool sent = channel.send(f);
  unsetenv("CMI_FAULT_POINT");
  arm_fault_points();
  return sent;
}
}  // namespace

TEST_CASE("a_wake_up_that_the_kernel_has_no_memory_for_is_sent_with_what_comes_next") {
  auto made = Channel::make();
  REQUIRE(made);
  Channel& writer = *made->channel;
  auto taken = Channel::take(std::move(made->passed));
  REQUIRE(taken);
  const auto reader = taken.take();
  // The second time there is no next message: the writer's pump sends it.
  for (const bool next : {true, false}) {
    Counting in;
    REQUIRE(reader->may_sleep());
    REQUIRE(send_without_memory(writer, frame(1)));
    REQUIRE_FALSE(readable(reader->wait_fd()));
    CHECK_FALSE(writer.idle());
    if (next) {
      CHECK(writer.send(frame(2)));
    } else {
      CHECK(writer.pump() == 0);
    }
    CHECK(readable(reader->wait_fd()));
    CHECK(writer.idle());
    while (reader->poll(in) > 0) {
    }
    CHECK(in.messages == (next ? 2 : 1));
  }
}

}  // namespace cmi::test::ring_wake_up_test
