// The rings through which processes of one machine talk, and another process that writes what it
// likes into their memory. CMI_TEST_SEED plays one seed again.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "fabric/fabric.hpp"
#include "fabric/ring/channel.hpp"
#include "fuzz/contexts.hpp"
#include "fuzz/targets.hpp"

namespace cmi::test {

namespace {
using namespace cmi::fabric;
using ring::Channel;

constexpr size_t kHead = 4096, kMemory = kHead + 2 * ring::kRingBytes;

struct CountingSink : ring::ChannelSink {
  uint64_t messages = 0;
  size_t largest = 0;
  void on_ring_message(Channel&, Bytes message) override {
    ++messages;
    largest = std::max(largest, message.size());
    Frame f;
    (void)decode_frame(message, &f);
  }
};

// A channel of ours, and what the other side may write to.
struct LyingPeer {
  std::unique_ptr<Channel> honest;
  Fd socket;
  Mapping map;
  LyingPeer() {
    auto made = Channel::make();
    REQUIRE(made);
    honest = std::move(made->channel);
    socket = std::move(made->passed.socket);
    map = Mapping(
        ::mmap(nullptr, kMemory, PROT_READ | PROT_WRITE, MAP_SHARED, made->passed.memory.get(), 0),
        kMemory);
    REQUIRE(map.data() != MAP_FAILED);
  }
  // The words of one ring: what has been written, read, and who sleeps.
  void word(size_t ring, size_t offset, uint64_t value) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(map.data() + ring * sizeof(ring::RingWords) +
                                                 offset * ring::kLine),
                     value, __ATOMIC_RELEASE);
  }
  void length(size_t ring, uint64_t at, uint64_t value) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(map.data() + kHead + ring * ring::kRingBytes +
                                                 at % ring::kRingBytes / 8 * 8),
                     value, __ATOMIC_RELAXED);
  }
};

// Numbers that are near to what can be, more often than not.
uint64_t some_count(Choices& choices) {
  switch (choices.below(4)) {
    case 0:
      return choices.any();
    case 1:
      return choices.below(ring::kRingBytes + 64);
    case 2:
      return 8 * choices.below(2 * ring::kRingBytes / 8);
    default:
      return 0 - choices.below(64);
  }
}

void lie(LyingPeer& peer, Choices& choices) {
  const size_t ring = choices.below(2);
  switch (choices.below(5)) {
    case 0:
      return peer.word(ring, 0, some_count(choices));
    case 1:
      return peer.word(ring, 1, some_count(choices));
    case 2:
      return peer.length(ring, choices.below(ring::kRingBytes), some_count(choices));
    case 3:
      for (int i = 0; i < 32; ++i) {
        peer.map.data()[choices.below(kMemory)] = static_cast<std::byte>(choices.any());
      }
      return;
    default:
      (void)::send(peer.socket.get(), "x", choices.below(2), MSG_DONTWAIT | MSG_NOSIGNAL);
      return;
  }
}
}  // namespace

uint64_t play_rings(Choices& choices, uint64_t most) {
  CountingSink sink;
  const std::vector<std::byte> payload(kMaxPayload, std::byte{7});
  uint64_t ended = 0;
  for (uint64_t i = 0; i < most && !choices.over();) {
    LyingPeer peer;
    for (; i < most && !choices.over() && !peer.honest->ended(); ++i) {
      switch (choices.below(4)) {
        case 0:
          lie(peer, choices);
          break;
        case 1:
          (void)peer.honest->send({FrameKind::kReply, 0, 1, i, 0,
                                   Bytes(payload).first(choices.below(kMaxPayload + 1))});
          break;
        case 2:
          (void)peer.honest->poll(sink);
          break;
        default:
          (void)peer.honest->may_sleep();
          (void)peer.honest->pump();
          break;
      }
    }
    if (!peer.honest->ended()) continue;
    ++ended;
    CHECK(peer.honest->poll(sink) == 0);
    CHECK_FALSE(peer.honest->send({FrameKind::kReply, 0, 1, 1, 0, {}}));
    CHECK(peer.honest->wait_fd() == -1);
  }
  CHECK(sink.largest <= kMaxMessage);
  return ended;
}

TEST_CASE("a_liar_in_the_memory_of_a_ring_ends_it_and_does_no_harm") {
  Choices choices(number_from("CMI_TEST_SEED", 9));
  CHECK(play_rings(choices, 20'000) > 100);
}

// While this side looks, copies and judges.
TEST_CASE("a_liar_that_writes_to_a_ring_all_the_time_does_no_harm") {
  CountingSink sink;
  const std::vector<std::byte> payload(3000, std::byte{7});
  uint64_t ended = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    LyingPeer peer;
    const pid_t liar = ::fork();
    if (liar == 0) {
      // Plain processor work: nothing of the library is used here.
      for (uint64_t n = seed;; n = n * 6364136223846793005 + 1442695040888963407) {
        const uint64_t value = n >> 40;
        peer.word(n >> 33 & 1, n >> 34 & 1, (value & 0xfff) * 8);
        peer.length(n >> 35 & 1, value & 0xffff, n >> 36 & 1 ? value : value & 0x7ff);
      }
    }
    for (int i = 0; i < 2000 && !peer.honest->ended(); ++i) {
      (void)peer.honest->poll(sink);
      (void)peer.honest->send({FrameKind::kReply, 0, 1, 1, 0, payload});
      (void)peer.honest->may_sleep();
      if (i % 16 == 0) ::sched_yield();
    }
    if (peer.honest->ended()) ++ended;
    ::kill(liar, SIGKILL);
    ::waitpid(liar, nullptr, 0);
  }
  CHECK(ended > 0);
  CHECK(sink.largest <= kMaxMessage);
}

}  // namespace cmi::test
