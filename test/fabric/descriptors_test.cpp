// Connections that an endpoint has accepted are found and ended, whatever descriptors there are.
#include "fabric/ofi/descriptors.hpp"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/fd.hpp"

namespace cmi::fabric::ofi::descriptors_test {

namespace {

struct Connected {
  Connected() : listens(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    socklen_t len = sizeof address;
    REQUIRE(::bind(listens.get(), at, len) == 0);
    REQUIRE(::listen(listens.get(), 1) == 0);
    REQUIRE(::getsockname(listens.get(), at, &len) == 0);
    caller.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(caller.get(), at, len) == 0);
    accepted.reset(::accept4(listens.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(accepted);
  }
  Bytes name() const { return {reinterpret_cast<const std::byte*>(&address), sizeof address}; }
  bool over() const {
    pollfd p{caller.get(), POLLIN, 0};
    char byte;
    return ::poll(&p, 1, 20'000) == 1 && ::recv(caller.get(), &byte, 1, 0) == 0;
  }

  sockaddr_in address{};
  Fd listens, caller, accepted;
};

TEST_CASE("what_an_endpoint_has_accepted_ends_and_nothing_else") {
  Connected ours, others;
  CHECK(Accepted(ours.name()).shut_down() == 1);
  CHECK(ours.over());
  char byte = 1;
  CHECK(::send(others.accepted.get(), &byte, 1, MSG_NOSIGNAL) == 1);
  CHECK(::recv(others.caller.get(), &byte, 1, 0) == 1);
}

TEST_CASE("a_socket_of_another_protocol_with_the_same_port_is_left_alone") {
  Connected ours;
  const auto* const at = reinterpret_cast<const sockaddr*>(&ours.address);
  const Fd datagrams(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(datagrams.get(), at, sizeof ours.address) == 0);
  CHECK(Accepted(ours.name()).shut_down() == 1);
  CHECK(ours.over());
  char byte = 1;
  CHECK(::sendto(datagrams.get(), &byte, 1, MSG_NOSIGNAL, at, sizeof ours.address) == 1);
  CHECK(::recv(datagrams.get(), &byte, 1, 0) == 1);
}

TEST_CASE("nobody_connects_to_an_endpoint_whose_connections_have_ended") {
  Connected ours;
  const auto connect = [&] {
    Fd late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* const at = reinterpret_cast<const sockaddr*>(&ours.address);
    return ::connect(late.get(), at, sizeof ours.address) == 0 ? std::move(late) : Fd();
  };
  const Fd waiting = connect();
  REQUIRE(waiting);
  Accepted accepted(ours.name());
  CHECK_FALSE(connect());
  CHECK(::accept4(ours.listens.get(), nullptr, nullptr, SOCK_CLOEXEC) == -1);
  CHECK(accepted.shut_down() == 1);  // what listened is not among them
  CHECK(ours.over());
  ours.accepted.reset();
  CHECK(accepted.shut_down() == 0);
}

TEST_CASE("what_an_endpoint_has_accepted_ends_also_when_there_is_no_descriptor_left") {
  Connected ours;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit none = before;
  none.rlim_cur = 0;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const int no_more = ::dup(0);
  const size_t found = Accepted(ours.name()).shut_down();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(no_more == -1);
  CHECK(found == 1);
  CHECK(ours.over());
}

}  // namespace

}  // namespace cmi::fabric::ofi::descriptors_test
