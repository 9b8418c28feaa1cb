// A process that serves its offers, and what finders and strangers get from it.
#include "core/rendezvous/tcp_offers.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <future>

#include "core/base/cause.hpp"
#include "core/rendezvous/tcp_finder.hpp"
#include "unit/some_offer.hpp"

namespace cmi::test::tcp_offers_test {
using namespace cmi::rendezvous;
using cmi::test::some_offer;

namespace {

constexpr Nanos kPatience = 10 * kSecond;

// A port that was free a moment ago, of 127.0.0.1.
std::string free_port() {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&at), length) == 0);
  REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &length) == 0);
  return std::to_string(ntohs(at.sin_port));
}

Place place(const std::string& port, const std::string& secret = {}) {
  return {Place::Kind::kTcp, {}, "127.0.0.1", port, secret, {}};
}
Place place_of(const std::string& host, const std::string& port) {
  return {Place::Kind::kTcp, {}, host, port, {}, {}};
}

Result<Offer> find(const Place& at, const std::string& name, Nanos patience = kPatience) {
  return TcpFinder(at, name).ask(patience);
}

// Connected, or without a descriptor.
Fd connect_to(const std::string& port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0) fd.reset();
  const timeval limit{10, 0};
  if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return fd;
}

// All that comes until the other side ends.
std::string read_all(int fd) {
  std::string text;
  char bytes[512];
  for (ssize_t n; (n = ::recv(fd, bytes, sizeof bytes, 0)) > 0;) {
    text.append(bytes, static_cast<size_t>(n));
  }
  return text;
}

size_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}
size_t threads() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

TEST_CASE("names_of_one_port_share_its_sockets_and_go_with_the_last") {
  const std::string port = free_port();
  TcpOffers offers;
  REQUIRE(offers.put(place(port), "a", some_offer()) == Status::kOk);
  const size_t before = descriptors();
  REQUIRE(offers.put(place(port), "b", some_offer(9, 9)) == Status::kOk);
  REQUIRE(offers.put(place(port), "b", some_offer(11, 11)) == Status::kOk);
  CHECK(descriptors() == before);
  const auto a = find(place(port), "a"), b = find(place(port), "b");
  REQUIRE(a);
  REQUIRE(b);
  CHECK(*a == some_offer());
  CHECK(*b == some_offer(11, 11));
  CHECK(find(place(port), "c").status() == Status::kReconfig);
  CHECK(std::string(take_cause(Status::kReconfig)) == "nobody offers it yet");
  CHECK(offers.remove(place(port), "a") == Status::kOk);
  CHECK(offers.remove(place(port), "a") == Status::kOk);
  CHECK(find(place(port), "a").status() == Status::kReconfig);
  REQUIRE(find(place(port), "b"));
  CHECK(offers.remove(place(port), "b") == Status::kOk);
  CHECK(find(place(port), "b").status() == Status::kReconfig);
  CHECK(std::string(take_cause(Status::kReconfig)) == "nobody listens there");
  // The port is free again at once.
  TcpOffers others;
  CHECK(others.put(place(port), "c", some_offer()) == Status::kOk);
  CHECK(find(place(port), "c"));
}

TEST_CASE("neither_descriptor_nor_thread_outlives_the_offers") {
  const size_t before = descriptors(), threads_before = threads();
  {
    const std::string port = free_port();
    TcpOffers offers;
    REQUIRE(offers.put(place(port), "a", some_offer()) == Status::kOk);
    const Fd waiting = connect_to(port);
    REQUIRE(waiting);
    REQUIRE(find(place(port), "a"));
    CHECK(threads() == threads_before + 1);
    offers.stop();
    CHECK(offers.put(place(port), "a", some_offer()) == Status::kInval);
    CHECK(read_all(waiting.get()).empty());
  }
  CHECK(descriptors() == before);
  CHECK(threads() == threads_before);
}

TEST_CASE("a_port_that_is_taken_and_a_host_that_is_not_ours_are_said_so") {
  const std::string port = free_port();
  TcpOffers first, second;
  REQUIRE(first.put(place(port), "a", some_offer()) == Status::kOk);
  CHECK(second.put(place(port), "a", some_offer()) == Status::kInval);
  CHECK(std::string(take_cause(Status::kInval)) == "another socket is at this port");
  // 192.0.2.0/24 is nobody's (RFC 5737).
  CHECK(second.put(place_of("192.0.2.1", port), "a", some_offer()) == Status::kInval);
  CHECK(std::string(take_cause(Status::kInval)) == "the host is not this machine");
  CHECK(second.put(place_of("no..host", port), "a", some_offer()) == Status::kInval);
  CHECK(std::string(take_cause(Status::kInval)) == "there is no such host");
  CHECK(second.put(place(port), "a", some_offer(7, 8)) == Status::kInval);
  // None of that has left anything behind.
  CHECK(first.remove(place(port), "a") == Status::kOk);
  CHECK(second.put(place(port), "a", some_offer()) == Status::kOk);
}

TEST_CASE("one_port_has_one_secret") {
  const std::string port = free_port();
  TcpOffers offers;
  REQUIRE(offers.put(place(port, "right"), "a", some_offer()) == Status::kOk);
  CHECK(offers.put(place(port, "wrong"), "b", some_offer()) == Status::kInval);
  CHECK(offers.remove(place(port), "a") == Status::kPerm);
  CHECK(find(place(port, "right"), "a"));
  CHECK(find(place(port, "wrong"), "a").status() == Status::kPerm);
  CHECK(find(place(port), "a").status() == Status::kPerm);
}

TEST_CASE("what_a_process_offers_has_bounds") {
  const std::string port = free_port();
  TcpOffers offers;
  for (size_t i = 0; i < TcpOffers::kMaxOffers; ++i) {
    REQUIRE(offers.put(place(port), std::to_string(i), some_offer()) == Status::kOk);
  }
  CHECK(offers.put(place(port), "more", some_offer()) == Status::kNoMem);
  CHECK(offers.put(place(port), "7", some_offer()) == Status::kOk);
  for (size_t i = 1; i < TcpOffers::kMaxListeners; ++i) {
    CHECK(offers.put(place(free_port()), "more", some_offer()) == Status::kNoMem);
  }
  CHECK(find(place(port), "1023"));
}

TEST_CASE("strangers_get_one_word_and_hold_nobody_up") {
  const std::string port = free_port();
  TcpOffers offers;
  REQUIRE(offers.put(place(port), "a", some_offer()) == Status::kOk);
  const std::string noise[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", std::string(1 << 16, 'x'),
                               std::string(64, '\0') + "\n"};
  for (const std::string& garbage : noise) {
    const Fd stranger = connect_to(port);
    REQUIRE(stranger);
    (void)::send(stranger.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    const std::string answer = read_all(stranger.get());
    // What was sent beyond the bound may make the kernel drop the answer.
    CHECK((answer == "bad\n" || (answer.empty() && garbage.size() > Answerer::kMaxLine)));
  }
  // More than are let in, and all of them silent: the oldest gives way to each that comes.
  std::vector<Fd> silent;
  for (size_t i = 0; i < 2 * TcpOffers::kMaxConnections; ++i) {
    silent.push_back(connect_to(port));
    REQUIRE(silent.back());
  }
  CHECK(find(place(port), "a"));
  CHECK(read_all(silent.front().get()).empty());
}

TEST_CASE("finders_are_answered_while_the_host_of_another_offer_is_looked_up") {
  std::promise<void> asked, answered;
  std::shared_future<void> may_answer = answered.get_future().share();
  TcpOffers offers([&](const std::string& host, const std::string& port) {
    if (host == "slow") {
      asked.set_value();
      may_answer.wait();
    }
    return resolve("127.0.0.1", port);
  });
  const std::string port = free_port(), slow_port = free_port();
  REQUIRE(offers.put(place(port), "a", some_offer()) == Status::kOk);
  auto slow = std::async(std::launch::async, [&] {
    return offers.put(place_of("slow", slow_port), "s", some_offer(5, 5));
  });
  REQUIRE(asked.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready);
  CHECK(find(place(port), "a"));
  CHECK(offers.put(place(port), "b", some_offer(6, 6)) == Status::kOk);
  CHECK(offers.remove(place(port), "a") == Status::kOk);
  CHECK(find(place(port), "b"));
  CHECK(find(place(slow_port), "s", 50 * kMilli).status() == Status::kReconfig);
  answered.set_value();
  CHECK(slow.get() == Status::kOk);
  CHECK(find(place(slow_port), "s"));
}

TEST_CASE("an_offer_whose_host_is_found_after_the_end_is_refused") {
  std::promise<void> asked, answered;
  const size_t before = descriptors();
  TcpOffers offers([&](const std::string&, const std::string& port) {
    asked.set_value();
    answered.get_future().wait();
    return resolve("127.0.0.1", port);
  });
  const std::string port = free_port();
  auto late =
      std::async(std::launch::async, [&] { return offers.put(place(port), "a", some_offer()); });
  REQUIRE(asked.get_future().wait_for(std::chrono::seconds(10)) == std::future_status::ready);
  offers.stop();
  answered.set_value();
  CHECK(late.get() == Status::kInval);
  CHECK(descriptors() == before);
}

TEST_CASE("who_says_nothing_is_sent_away") {
  const std::string port = free_port();
  TcpOffers offers;
  REQUIRE(offers.put(place(port), "a", some_offer()) == Status::kOk);
  const Fd silent = connect_to(port);
  REQUIRE(silent);
  const timeval limit{60, 0};
  ::setsockopt(silent.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char byte;
  CHECK(::recv(silent.get(), &byte, 1, 0) == 0);
}

TEST_CASE("a_finder_of_what_is_no_offerer_is_told_in_time") {
  const std::string port = free_port();
  const Fd listening(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
  REQUIRE(::bind(listening.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  CHECK(find(place(port), "a").status() == Status::kReconfig);  // nobody listens
  REQUIRE(::listen(listening.get(), 4) == 0);
  CHECK(find(place(port), "a", 50 * kMilli).status() == Status::kReconfig);
  CHECK(std::string(take_cause(Status::kReconfig)) == "what listens there does not answer");
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // The first caller has gone; the second hears what is no offer, the third nothing at all.
    for (const char* words : {"", "HTTP/1.1 400 Bad Request\r\n\r\n", ""}) {
      const Fd caller(::accept(listening.get(), nullptr, nullptr));
      (void)::send(caller.get(), words, ::strlen(words), MSG_NOSIGNAL);
    }
    ::_exit(0);
  }
  CHECK(find(place(port), "a").status() == Status::kInval);
  CHECK(std::string(take_cause(Status::kInval)) == "what answers there is no offer");
  CHECK(find(place(port), "a").status() == Status::kReconfig);
  CHECK(std::string(take_cause(Status::kReconfig)) == "the connection to the offer ended early");
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
}

TEST_CASE("a_forked_child_keeps_no_port") {
  const std::string port = free_port();
  TcpOffers offers;
  REQUIRE(offers.put(place(port), "a", some_offer()) == Status::kOk);
  REQUIRE(find(place(port), "a"));
  int signs[2];
  REQUIRE(::pipe(signs) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    offers.forget_in_child();
    char byte = 1;
    (void)!::write(signs[1], &byte, 1);
    for (;;) ::pause();
  }
  char byte = 0;
  REQUIRE(::read(signs[0], &byte, 1) == 1);
  CHECK(find(place(port), "a"));  // the parent's serves on
  offers.stop();
  CHECK(find(place(port), "a").status() == Status::kReconfig);
  CHECK(std::string(take_cause(Status::kReconfig)) == "nobody listens there");
  ::kill(child, SIGKILL);
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  ::close(signs[0]);
  ::close(signs[1]);
}

}  // namespace cmi::test::tcp_offers_test
