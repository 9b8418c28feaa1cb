// Lifelines between contexts of this process and of others, over the loopback interface: what each
// end learns of the other's life and death, and what strangers can do to them.
#include "fabric/lifeline.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace cmi::test::lifeline_test {
namespace {

using fabric::Lifelines;
using fabric::Side;
using fabric::Sign;

constexpr Nanos kPatient = 10 * kSecond;
constexpr uint64_t kSecret = 4711;

std::vector<std::byte> loopback(uint16_t port = 1) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<std::byte> bytes(sizeof a);
  std::memcpy(bytes.data(), &a, sizeof a);
  return bytes;
}

struct Seen {
  Side side;
  Sign sign;
  uint64_t value;
};

// One end, which writes down what it is told.
class End : public fabric::LifelineOwner {
 public:
  explicit End(ContextId own, Nanos dead_after = 7 * kSecond) : id(own) {
    auto l = Lifelines::open({loopback()}, id, dead_after, *this);
    REQUIRE(l);
    lines = l.take();
  }
  bool admits(const ContextId&, uint64_t secret) override { return secret == kSecret; }
  bool follows(const ContextId& home) override { return followed.count(home) != 0; }
  void on_up(const ContextId&, Side side, uint16_t listener, uint64_t value) override {
    ups.push_back(side);
    told = value;
    peers_listener = listener;
  }
  void on_sign(const ContextId&, Side side, Sign sign, uint64_t value) override {
    signs.push_back({side, sign, value});
  }
  void on_lost(const ContextId&, Side side) override { lost.push_back(side); }
  void on_refused(const ContextId& peer, Side) override { refused.insert(peer); }

  bool connect(const End& home, uint64_t secret = kSecret) {
    return lines->connect(home.id, loopback(), home.lines->port(), secret, now());
  }

  ContextId id;
  std::vector<Side> ups, lost;
  std::vector<Seen> signs;
  std::set<ContextId> refused, followed;
  uint64_t told = 0;
  uint16_t peers_listener = 0;
  std::unique_ptr<Lifelines> lines;
};

// Both ends do their work, as often as their descriptors say, until it has happened.
bool until(std::initializer_list<End*> ends, const std::function<bool()>& happened) {
  const Deadline deadline = Deadline::in(kPatient);
  while (!happened()) {
    if (deadline.passed()) return false;
    std::vector<pollfd> fds;
    for (End* e : ends) fds.push_back({e->lines->descriptor(), POLLIN, 0});
    ::poll(fds.data(), fds.size(), 10);
    for (End* e : ends) e->lines->advance(now());
  }
  return true;
}

struct Pair {
  End home{{1, 1}}, importer{{2, 2}};
  Pair() {
    REQUIRE(importer.connect(home));
    REQUIRE(until([&] { return !home.ups.empty() && !importer.ups.empty(); }));
  }
  bool until(const std::function<bool()>& happened) {
    return lifeline_test::until({&home, &importer}, happened);
  }
};

Fd stranger(const End& home) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto to = loopback(home.lines->port());
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(to.data()),
                    static_cast<socklen_t>(to.size())) == 0);
  return fd;
}

bool closed(const Fd& fd) {
  char byte;
  const ssize_t n = ::recv(fd.get(), &byte, 1, MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno == ECONNRESET);
}

// A process that has lifelines until it is killed.
class OtherProcess {
 public:
  // With `child` it forks one when its first line is up, and says there who that is.
  explicit OtherProcess(pid_t* child = nullptr) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      End end(id);
      port = end.lines->port();
      if (::write(ends[1], &port, sizeof port) != sizeof port) _exit(1);
      for (bool forked = child == nullptr;;) {
        pollfd p{end.lines->descriptor(), POLLIN, 0};
        ::poll(&p, 1, 100);
        end.lines->advance(now());
        if (forked || end.ups.empty()) continue;
        forked = true;
        if (const pid_t pid = ::fork(); pid != 0) {
          *child = pid;
          continue;
        }
        end.lines->forget_in_child();
        for (;;) ::pause();
      }
    }
    ::close(ends[1]);
    REQUIRE(::read(ends[0], &port, sizeof port) == sizeof port);
    ::close(ends[0]);
  }
  ~OtherProcess() { kill(); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  bool connect(End& from) { return from.lines->connect(id, loopback(), port, kSecret, now()); }
  const ContextId id{9, 9};
  uint16_t port = 0;

 private:
  pid_t pid_ = 0;
};

}  // namespace

TEST_SUITE("lifeline") {
  TEST_CASE("a_line_comes_up_and_carries_signs_both_ways") {
    Pair pair;
    CHECK(pair.importer.told == static_cast<uint64_t>(7 * kSecond));
    CHECK(pair.home.peers_listener == pair.importer.lines->port());
    CHECK(pair.importer.ups == std::vector<Side>{Side::kOurs});
    CHECK(pair.home.ups == std::vector<Side>{Side::kTheirs});
    for (uint64_t i = 1; i <= 1000; ++i) {
      REQUIRE(pair.importer.lines->send(pair.home.id, Side::kOurs, Sign::kAsk, i));
      REQUIRE(pair.home.lines->send(pair.importer.id, Side::kTheirs, Sign::kVouch, ~i));
      if (i % 100 == 0) REQUIRE(pair.until([&] { return pair.home.signs.size() == i; }));
    }
    REQUIRE(pair.until(
        [&] { return pair.home.signs.size() == 1000 && pair.importer.signs.size() == 1000; }));
    for (uint64_t i = 1; i <= 1000; ++i) {
      CHECK(pair.home.signs[i - 1].sign == Sign::kAsk);
      CHECK(pair.home.signs[i - 1].value == i);
      CHECK(pair.importer.signs[i - 1].sign == Sign::kVouch);
      CHECK(pair.importer.signs[i - 1].value == ~i);
    }
    CHECK_FALSE(pair.home.lines->send(pair.importer.id, Side::kOurs, Sign::kAsk, 1));
  }

  TEST_CASE("a_goodbye_arrives_before_the_end_of_the_line") {
    Pair pair;
    pair.importer.lines->say_goodbye();
    REQUIRE(pair.until([&] { return !pair.home.lost.empty(); }));
    REQUIRE(pair.home.signs.size() == 1);
    CHECK(pair.home.signs[0].sign == Sign::kGoodbye);
    CHECK_FALSE(pair.home.lines->send(pair.importer.id, Side::kTheirs, Sign::kAsk, 1));
  }

  TEST_CASE("the_end_of_a_killed_process_is_seen_and_the_next_look_proves_it") {
    OtherProcess other;
    End here({1, 1});
    REQUIRE(other.connect(here));
    REQUIRE(until({&here}, [&] { return !here.ups.empty(); }));
    other.kill();
    REQUIRE(until({&here}, [&] { return !here.lost.empty(); }));
    CHECK(here.refused.empty());
    SUBCASE("by connecting again") { other.connect(here); }
    SUBCASE("by a probe") { here.lines->probe(other.id, loopback(), other.port, now()); }
    CHECK(until({&here}, [&] { return here.refused.count(other.id) != 0; }));
  }

  TEST_CASE("a_forked_child_does_not_keep_the_lines_of_a_killed_parent_open") {
    Mapping shared(
        ::mmap(nullptr, kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
        kPageSize);
    auto* child = reinterpret_cast<pid_t*>(shared.data());
    End here({1, 1});
    OtherProcess other(child);
    REQUIRE(other.connect(here));
    REQUIRE(until({&here}, [&] { return !here.ups.empty() && *child != 0; }));
    other.kill();
    CHECK(until({&here}, [&] { return !here.lost.empty(); }));
    other.connect(here);
    CHECK(until({&here}, [&] { return here.refused.count(other.id) != 0; }));
    CHECK(::kill(*child, 0) == 0);  // it was there all the time
    ::kill(*child, SIGKILL);
  }

  TEST_CASE("a_probe_finds_out_whether_an_importer_is_there_and_still_ours") {
    End home({1, 1});
    auto importer = std::make_unique<End>(ContextId{2, 2});
    const uint16_t port = importer->lines->port();
    importer->followed.insert(home.id);
    home.lines->probe(importer->id, loopback(), port, now());
    CHECK(until({&home, importer.get()}, [&] { return home.lines->lines() == 0; }));
    CHECK(home.signs.empty());
    importer->followed.clear();
    home.lines->probe(importer->id, loopback(), port, now());
    CHECK(until({&home, importer.get()}, [&] { return !home.signs.empty(); }));
    CHECK(home.signs[0].sign == Sign::kOver);
    CHECK(home.signs[0].side == Side::kTheirs);
    CHECK(home.refused.empty());
    CHECK(home.lost.empty());
    const ContextId gone = importer->id;
    importer.reset();
    home.lines->probe(gone, loopback(), port, now());
    CHECK(until({&home}, [&] { return home.refused.count(gone) != 0; }));
  }

  TEST_CASE("who_knows_the_secret_not_or_means_another_is_told_that_all_is_over") {
    End home({1, 1}), importer({2, 2});
    SUBCASE("wrong secret") { REQUIRE(importer.connect(home, kSecret + 1)); }
    SUBCASE("another context") {
      REQUIRE(importer.lines->connect({3, 3}, loopback(), home.lines->port(), kSecret, now()));
    }
    REQUIRE(until({&home, &importer}, [&] { return !importer.signs.empty(); }));
    CHECK(importer.signs[0].sign == Sign::kOver);
    CHECK(home.ups.empty());
    CHECK(importer.ups.empty());
  }

  TEST_CASE("a_newer_line_takes_the_place_of_the_older_one") {
    Pair pair;
    REQUIRE(pair.importer.connect(pair.home));
    REQUIRE(pair.until([&] { return pair.importer.ups.size() == 2; }));
    REQUIRE(pair.importer.lines->send(pair.home.id, Side::kOurs, Sign::kAsk, 5));
    REQUIRE(pair.until([&] { return !pair.home.signs.empty(); }));
    REQUIRE(pair.home.lines->send(pair.importer.id, Side::kTheirs, Sign::kAnswer, 6));
    REQUIRE(pair.until([&] { return !pair.importer.signs.empty(); }));
    CHECK(pair.importer.signs[0].value == 6);
  }

  TEST_CASE("a_line_that_nobody_answers_is_given_up") {
    End importer({2, 2});
    Fd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    auto at = loopback(0);
    REQUIRE(::bind(silent.get(), reinterpret_cast<sockaddr*>(at.data()), sizeof(sockaddr_in)) == 0);
    REQUIRE(::listen(silent.get(), 8) == 0);
    sockaddr_in bound{};
    socklen_t len = sizeof bound;
    REQUIRE(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&bound), &len) == 0);
    REQUIRE(importer.lines->connect({1, 1}, loopback(), ntohs(bound.sin_port), kSecret, now()));
    CHECK(importer.lines->trying({1, 1}));
    CHECK(until({&importer}, [&] { return importer.lost == std::vector<Side>{Side::kOurs}; }));
    CHECK_FALSE(importer.lines->trying({1, 1}));
    CHECK(importer.ups.empty());
  }

  TEST_CASE("strangers_are_dropped_and_disturb_nobody") {
    Pair pair;
    std::vector<Fd> silent;
    for (int i = 0; i < 200; ++i) silent.push_back(stranger(pair.home));
    CHECK(pair.until([&] { return closed(silent.front()); }));
    for (size_t bytes : {1u, 15u, 16u, 63u, 64u, 65u, 4096u}) {
      Fd fd = stranger(pair.home);
      const std::vector<char> garbage(bytes, '\x5a');
      static_cast<void>(::send(fd.get(), garbage.data(), bytes, MSG_NOSIGNAL));
      if (bytes >= 64) CHECK(pair.until([&] { return closed(fd); }));
    }
    for (auto& fd : silent) CHECK(pair.until([&] { return closed(fd); }));
    CHECK(pair.home.lost.empty());
    REQUIRE(pair.importer.lines->send(pair.home.id, Side::kOurs, Sign::kAsk, 5));
    CHECK(pair.until([&] { return pair.home.signs.size() == 1; }));
  }

  TEST_CASE("the_bytes_of_signs") {
    End home({1, 1}, 0x0102030405060708);
    Fd fd = stranger(home);
    std::byte greeting[64] = {};
    Writer out(greeting);
    out.put<uint64_t>(0x3145'4649'4c49'4d43);
    for (uint64_t word : {2, 2, 1, 1}) out.put(word);
    out.put(kSecret);
    out.put<uint16_t>(1);
    REQUIRE(::send(fd.get(), greeting, sizeof greeting, MSG_NOSIGNAL) == sizeof greeting);
    REQUIRE(until({&home}, [&] { return !home.ups.empty(); }));
    const auto next = [&] {
      std::string sign(16, 0);
      CHECK(::recv(fd.get(), sign.data(), sign.size(), MSG_WAITALL) == 16);
      return sign;
    };
    CHECK(next() == std::string("CMLS\1\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01", 16));
    constexpr Sign kSigns[] = {Sign::kAsk, Sign::kVouch, Sign::kAnswer, Sign::kGoodbye,
                               Sign::kOver};
    char code = 2;
    for (const Sign sign : kSigns) {
      REQUIRE(home.lines->send({2, 2}, Side::kTheirs, sign, 9));
      CHECK(next() == std::string("CMLS") + code++ + std::string("\0\0\0\x09\0\0\0\0\0\0\0", 11));
    }
  }

  TEST_CASE("a_line_on_which_something_else_than_signs_comes_is_lost") {
    End home({1, 1});
    Fd fd = stranger(home);
    std::byte greeting[64] = {};
    Writer out(greeting);
    out.put<uint64_t>(0x3145'4649'4c49'4d43);
    for (uint64_t word : {2, 2, 1, 1}) out.put(word);
    out.put(kSecret);
    out.put<uint16_t>(1);
    for (std::byte b : greeting) {  // byte by byte
      REQUIRE(::send(fd.get(), &b, 1, MSG_NOSIGNAL) == 1);
      home.lines->advance(now());
    }
    REQUIRE(until({&home}, [&] { return !home.ups.empty(); }));
    const char garbage[16] = {};
    REQUIRE(::send(fd.get(), garbage, sizeof garbage, MSG_NOSIGNAL) == sizeof garbage);
    CHECK(until({&home}, [&] { return home.lost == std::vector<Side>{Side::kTheirs}; }));
    CHECK(home.signs.empty());
  }

  TEST_CASE("a_peer_that_does_not_read_holds_up_nobody") {
    Pair pair;
    // Until no buffer takes any more; the sign after that is not said, and nothing blocks.
    uint64_t said = 0;
    while (said < 10'000'000 &&
           pair.home.lines->send(pair.importer.id, Side::kTheirs, Sign::kAsk, said)) {
      ++said;
    }
    CHECK(said < 10'000'000);
  }

  TEST_CASE("an_address_without_ip_has_no_lifelines") {
    End end({1, 1});
    const std::vector<std::byte> other(40, std::byte{7});
    CHECK(Lifelines::open({other}, {1, 1}, kSecond, end).status() == Status::kNotSupp);
    CHECK_FALSE(end.lines->connect({2, 2}, other, 80, kSecret, now()));
  }
}

}  // namespace cmi::test::lifeline_test
