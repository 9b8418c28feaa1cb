// Rings in shared memory: what is sent comes, whole and in order; what cannot be ends the channel.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include "fabric/fabric.hpp"
#include "fabric/ring/channel.hpp"

namespace cmi::test::ring_test {
using namespace cmi::fabric;
using ring::Channel;

namespace {
struct Inbox : ring::ChannelSink {
  struct Message {
    uint64_t number = 0;
    std::vector<std::byte> payload;
  };
  std::deque<Message> messages;
  void on_ring_message(Channel&, Bytes bytes) override {
    Frame f;
    REQUIRE(decode_frame(bytes, &f));
    messages.push_back({f.number, {f.payload.begin(), f.payload.end()}});
  }
};

struct Pair {
  std::unique_ptr<Channel> maker, taker;
  Pair() {
    auto made = Channel::make();
    REQUIRE(made);
    maker = std::move(made->channel);
    auto taken = Channel::take(std::move(made->passed));
    REQUIRE(taken);
    taker = taken.take();
  }
};

std::vector<std::byte> some_bytes(size_t n, uint64_t seed) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 31 + seed);
  return bytes;
}

Frame frame(uint64_t number, Bytes payload = {}) {
  return {FrameKind::kRequest, 3, 4, number, 5, payload};
}

// A poll may end early where this thread has to wait for a processor.
int poll_all(Channel& channel, ring::ChannelSink& in) {
  int messages = 0;
  while (const int some = channel.poll(in)) messages += some;
  return messages;
}

bool readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 1;
}
}  // namespace

// What processes of two versions of the library have to agree on (doc/design/local.md).
TEST_CASE("the_bytes_of_a_ring") {
  using ring::RingReader, ring::RingWords, ring::RingWriter;
  static_assert(offsetof(RingWords, read) == 64 && offsetof(RingWords, asleep) == 72 &&
                sizeof(RingWords) == 128 && ring::kRingBytes == 65536);
  RingWords words{};
  std::vector<std::byte> bytes(ring::kRingBytes);
  RingWriter writer(words, bytes.data());
  const auto first = some_bytes(3, 1), second = some_bytes(2, 2), other = some_bytes(16, 3);
  const Bytes two[] = {first, second}, one[] = {other};
  REQUIRE(writer.put(two) == RingWriter::Put::kDone);
  REQUIRE(writer.put(one) == RingWriter::Put::kDone);
  std::vector<std::byte> expected(8 + 8 + 8 + 16);
  expected[0] = std::byte{5};  // a word with the length, the bytes, and padding up to a word
  std::memcpy(expected.data() + 8, first.data(), 3);
  std::memcpy(expected.data() + 11, second.data(), 2);
  expected[16] = std::byte{16};
  std::memcpy(expected.data() + 24, other.data(), 16);
  CHECK(std::equal(expected.begin(), expected.end(), bytes.begin()));
  CHECK(words.written.load() == expected.size());
  RingReader reader(words, bytes.data());
  REQUIRE(reader.next() == RingReader::Next::kMessage);
  CHECK(reader.size() == 5);
  std::byte taken[5];
  reader.take(taken);
  CHECK(words.read.load() == 16);
  // The memory of a channel: the words of both directions, then the bytes of both.
  auto made = Channel::make();
  REQUIRE(made);
  auto taker =
      Channel::take({Fd(::dup(made->passed.memory.get())), std::move(made->passed.socket)});
  REQUIRE(taker);
  REQUIRE(made->channel->send(frame(1)));
  REQUIRE((*taker)->send(frame(2)));
  uint64_t word = 0;
  const auto word_at = [&](off_t at) {
    REQUIRE(::pread(made->passed.memory.get(), &word, sizeof word, at) == sizeof word);
    return word;
  };
  CHECK(word_at(0) == 8 + 40);    // 36 bytes and padding
  CHECK(word_at(128) == 8 + 40);  // of the other direction
  CHECK(word_at(4096) == kFrameHeader);
  CHECK(word_at(4096 + 65536) == kFrameHeader);
  CHECK(::lseek(made->passed.memory.get(), 0, SEEK_END) == 4096 + 2 * 65536);
}

TEST_CASE("messages_of_all_lengths_come_through_a_ring_whole_and_in_order") {
  Pair pair;
  Inbox at_maker, at_taker;
  uint64_t number = 0;
  for (size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{4096}, kMaxPayload,
                      size_t{333}, kMaxPayload - 1, size_t{5}}) {
    for (int i = 0; i < 5; ++i) {
      const auto bytes = some_bytes(size, ++number);
      // In two parts, as notifications are sent.
      Frame f = frame(number, Bytes(bytes).first(size / 3));
      f.more = Bytes(bytes).subspan(size / 3);
      REQUIRE(pair.maker->send(f));
      REQUIRE(pair.taker->send(frame(number, bytes)));
      CHECK(pair.taker->poll(at_taker) == 1);
      CHECK(pair.maker->poll(at_maker) == 1);
      for (Inbox* in : {&at_maker, &at_taker}) {
        REQUIRE(in->messages.size() == 1);
        CHECK(in->messages[0].number == number);
        CHECK(in->messages[0].payload == bytes);
        in->messages.clear();
      }
    }
  }
}

TEST_CASE("what_a_full_ring_does_not_take_waits_and_comes_in_order") {
  Pair pair;
  Inbox in;
  // A short one would fit where a long one before it does not.
  const auto bytes_of = [](uint64_t number) {
    return some_bytes(number % 2 != 0 ? 20'000 : 10, number);
  };
  for (uint64_t number = 1; number <= 10; ++number) {
    const auto bytes = bytes_of(number);
    REQUIRE(pair.maker->send(frame(number, bytes)));
  }
  CHECK_FALSE(pair.maker->idle());
  CHECK(pair.maker->pump() == 0);
  for (int round = 0; round < 20 && in.messages.size() < 10; ++round) {
    pair.taker->poll(in);
    pair.maker->pump();
  }
  CHECK(pair.maker->idle());
  REQUIRE(in.messages.size() == 10);
  for (uint64_t i = 0; i < 10; ++i) {
    CHECK(in.messages[i].number == i + 1);
    CHECK(in.messages[i].payload == bytes_of(i + 1));
  }
}

TEST_CASE("a_message_too_long_for_a_ring_is_refused") {
  Pair pair;
  const auto bytes = some_bytes(kMaxMessage, 1);
  CHECK_FALSE(pair.maker->send(frame(1, bytes)));
}

TEST_CASE("who_sleeps_at_a_ring_is_woken_once_and_nobody_else") {
  Pair pair;
  Inbox in;
  REQUIRE(pair.maker->send(frame(1)));
  CHECK_FALSE(readable(pair.taker->wait_fd()));  // it looks by itself
  CHECK_FALSE(pair.taker->may_sleep());
  CHECK(pair.taker->poll(in) == 1);
  REQUIRE(pair.taker->may_sleep());
  CHECK_FALSE(readable(pair.taker->wait_fd()));
  REQUIRE(pair.maker->send(frame(2)));
  CHECK(readable(pair.taker->wait_fd()));
  REQUIRE(pair.maker->send(frame(3)));
  CHECK(poll_all(*pair.taker, in) == 2);
  // One wake-up for both, which is gone when it sleeps again.
  REQUIRE(pair.taker->may_sleep());
  CHECK_FALSE(readable(pair.taker->wait_fd()));
}

TEST_CASE("a_poll_of_a_ring_ends_after_a_stretch_and_leaves_the_rest_to_the_next") {
  struct Slow : ring::ChannelSink {
    int messages = 0;
    void on_ring_message(Channel&, Bytes) override {
      ++messages;
      const Nanos begun = now();
      while (now() - begun <= 2 * Endpoint::kStretch) {
      }
    }
  } in;
  Pair pair;
  for (uint64_t number = 1; number <= 3; ++number) REQUIRE(pair.maker->send(frame(number)));
  for (int i = 1; i <= 3; ++i) {
    CHECK_FALSE(pair.taker->may_sleep());
    CHECK(pair.taker->poll(in) == 1);
    CHECK(in.messages == i);
  }
  CHECK(pair.taker->may_sleep());
}

TEST_CASE("a_ring_ends_with_the_other_side_and_says_so_to_who_sleeps") {
  Pair pair;
  Inbox in;
  REQUIRE(pair.taker->may_sleep());
  REQUIRE(pair.maker->send(frame(1)));
  pair.maker.reset();
  CHECK(readable(pair.taker->wait_fd()));
  CHECK(pair.taker->poll(in) == 1);  // what was sent before
  CHECK_FALSE(pair.taker->ended());
  CHECK_FALSE(pair.taker->may_sleep());
  CHECK(pair.taker->ended());
  CHECK(pair.taker->wait_fd() == -1);
  CHECK_FALSE(pair.taker->send(frame(2)));
}

// It looks before the other side sends, and finds out by sending itself that it is gone.
TEST_CASE("what_was_sent_before_the_other_side_went_comes_though_a_send_finds_it_gone") {
  Pair pair;
  Inbox in;
  REQUIRE(pair.maker->may_sleep());  // so that the send wakes it
  REQUIRE(pair.maker->send(frame(1)));
  REQUIRE(pair.maker->send(frame(2)));
  REQUIRE(pair.taker->may_sleep() == false);
  CHECK(poll_all(*pair.taker, in) == 2);
  REQUIRE(pair.taker->may_sleep());
  REQUIRE(pair.taker->send(frame(3)));
  REQUIRE(pair.taker->send(frame(4)));
  pair.taker.reset();
  (void)pair.maker->send(frame(5));  // wakes nobody
  CHECK_FALSE(pair.maker->ended());
  CHECK_FALSE(pair.maker->send(frame(6)));
  CHECK_FALSE(pair.maker->may_sleep());
  in.messages.clear();
  CHECK(poll_all(*pair.maker, in) == 2);
  CHECK(pair.maker->ended());
  REQUIRE(in.messages.size() == 2);
  CHECK(in.messages[0].number == 3);
  CHECK(in.messages[1].number == 4);
}

// Here the other side writes and goes between the reader's look into the ring and that at the
// socket.
TEST_CASE("what_comes_with_the_end_of_the_other_side_is_handed_out_before_it") {
  for (int i = 0; i < 300; ++i) {
    Pair pair;
    std::atomic<bool> begin{false};
    std::thread answers([&] {
      while (!begin.load()) {
      }
      (void)pair.taker->send(frame(7));
      pair.taker.reset();
    });
    Inbox in;
    begin.store(true);
    while (!pair.maker->ended()) {
      if (!pair.maker->may_sleep()) pair.maker->poll(in);
    }
    answers.join();
    REQUIRE(in.messages.size() == 1);
  }
}

TEST_CASE("a_ring_that_one_side_ends_is_over_for_both") {
  Pair pair;
  pair.maker->end("a test");
  CHECK(pair.maker->ended());
  CHECK(readable(pair.taker->wait_fd()));
  CHECK_FALSE(pair.taker->may_sleep());
  Inbox in;
  CHECK(pair.taker->poll(in) == 0);
  CHECK(pair.taker->ended());
  CHECK_FALSE(pair.taker->lied());
}

TEST_CASE("memory_that_may_vanish_or_is_no_ring_is_not_taken") {
  const auto refused = [](Fd memory) {
    auto made = Channel::make();
    REQUIRE(made);
    return Channel::take({std::move(memory), std::move(made->passed.socket)}).status() ==
           Status::kInval;
  };
  auto made = Channel::make();
  REQUIRE(made);
  const auto size = ::lseek(made->passed.memory.get(), 0, SEEK_END);
  Fd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(unsealed.get(), size) == 0);
  CHECK(refused(std::move(unsealed)));
  Fd small(::memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(small.get(), size / 2) == 0);
  REQUIRE(::fcntl(small.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  CHECK(refused(std::move(small)));
  CHECK(refused(Fd(::open("/dev/zero", O_RDWR | O_CLOEXEC))));
  CHECK(refused(Fd()));
  // Neither side can take pages of the other's.
  CHECK(::ftruncate(made->passed.memory.get(), 0) != 0);

  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const Fd other(ends[1]);
  CHECK(Channel::take({std::move(made->passed.memory), Fd(ends[0])}).status() == Status::kInval);
}

TEST_CASE("memory_that_the_other_side_leaves_out_is_got_when_a_ring_is_taken_and_after_a_hole") {
  auto made = Channel::make();
  REQUIRE(made);
  const auto size = ::lseek(made->passed.memory.get(), 0, SEEK_END);
  Fd sparse(::memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(sparse.get(), size) == 0);
  REQUIRE(::fcntl(sparse.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  const Fd theirs(::dup(sparse.get()));
  const auto taken = Channel::take({std::move(sparse), std::move(made->passed.socket)});
  REQUIRE(taken);
  struct stat st {};
  REQUIRE(::fstat(theirs.get(), &st) == 0);
  CHECK(st.st_blocks * 512 == size);
  Inbox in;
  REQUIRE((*taken)->send(frame(1)));
  REQUIRE(::fallocate(theirs.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size) == 0);
  CHECK((*taken)->send(frame(2)));
  CHECK((*taken)->poll(in) == 0);
}

// Each message carries the test's own end of a pipe, of which nothing is left when it is received.
TEST_CASE("descriptors_that_come_with_a_wake_up_are_refused_or_dropped") {
  constexpr int kPassRights = 83;  // SO_PASSRIGHTS
  auto made = Channel::make();
  REQUIRE(made);
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  const Fd out(ends[0]);
  Fd in(ends[1]);
  const int passed = in.get();
  char byte = 0;
  iovec iov{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof passed)] = {};
  msghdr m{};
  m.msg_iov = &iov;
  m.msg_iovlen = 1;
  m.msg_control = control;
  m.msg_controllen = sizeof control;
  cmsghdr* const head = CMSG_FIRSTHDR(&m);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof passed);
  std::memcpy(CMSG_DATA(head), &passed, sizeof passed);
  int value = 0;
  socklen_t size = sizeof value;
  const int theirs = made->passed.socket.get();
  const bool kernel_refuses = ::getsockopt(theirs, SOL_SOCKET, kPassRights, &value, &size) == 0;
  const ssize_t sent = ::sendmsg(theirs, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
  CHECK(sent == (kernel_refuses ? -1 : 1));
  in.reset();
  CHECK(made->channel->may_sleep());
  CHECK(::read(out.get(), &byte, 1) == 0);  // nobody has the other end any more
}

TEST_CASE("an_index_of_the_other_side_that_cannot_be_ends_a_ring_at_once") {
  struct Counting : ring::ChannelSink {
    void on_ring_message(Channel&, Bytes) override {}
  } sink;
  const auto bytes = some_bytes(20'000, 1);
  constexpr size_t kMost = 2 * ring::kRingBytes;
  // The first ring is the maker's to write to. Each row: what the other side says it has written
  // there, in steps, or read here.
  struct Row {
    std::vector<uint64_t> written, read;
  };
  const std::vector<Row> rows{{{ring::kRingBytes + 8}, {}},
                              {{4}, {}},
                              {{0 - uint64_t{16}}, {}},
                              {{16, 8}, {}},
                              {{}, {kMost}},
                              {{}, {4}},
                              {{}, {0 - uint64_t{8}}}};
  for (const Row& row : rows) {
    auto made = Channel::make();
    REQUIRE(made);
    Channel& honest = *made->channel;
    const Mapping map(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, made->passed.memory.get(), 0),
        4096);
    auto* const words = reinterpret_cast<ring::RingWords*>(map.data());
    for (const uint64_t written : row.written) {
      CHECK_FALSE(honest.ended());
      words[1].written.store(written);
      honest.poll(sink);
    }
    for (const uint64_t read : row.read) {
      words[0].read.store(read);
      for (int i = 0; i < 4; ++i) (void)honest.send(frame(1, bytes));
    }
    CHECK(honest.ended());
    CHECK(honest.lied());
  }
}

// Both sides send at once, sleep and wake each other; each numbers its messages.
TEST_CASE("two_threads_that_sleep_at_a_ring_lose_no_message") {
  Pair pair;
  constexpr uint64_t kMessages = 5000;
  const auto play = [](Channel& mine) {
    Inbox in;
    uint64_t sent = 0, seen = 0;
    bool in_order = true;
    while (seen < kMessages || sent < kMessages) {
      // As a game of ball, now and then with several balls.
      while (sent < kMessages && sent <= seen + seen % 7) {
        const auto bytes = some_bytes(sent % 200, sent);
        REQUIRE(mine.send(frame(++sent, bytes)));
      }
      mine.pump();
      if (mine.poll(in) == 0 && seen < kMessages && mine.may_sleep()) {
        pollfd p{mine.wait_fd(), POLLIN, 0};
        if (::poll(&p, 1, 10'000) == 0) return false;  // nobody woke it
      }
      for (; !in.messages.empty(); in.messages.pop_front()) {
        ++seen;
        in_order = in_order && in.messages.front().number == seen;
      }
    }
    return in_order && sent == kMessages;
  };
  bool other = false;
  std::thread t([&] { other = play(*pair.taker); });
  CHECK(play(*pair.maker));
  t.join();
  CHECK(other);
}

}  // namespace cmi::test::ring_test
