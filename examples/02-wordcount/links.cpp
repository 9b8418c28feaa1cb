// Sockets, addresses and lines. Nothing blocks outside poll().
#include "links.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "failure.hpp"

namespace wordcount {
namespace {

using std::chrono::milliseconds;

constexpr size_t kLongestLine = 64 * 1024;

milliseconds time_left() {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  return std::clamp(left, milliseconds(0), milliseconds(1000 * 1000));
}

// False when nothing has happened in that time.
bool wait_for(int fd, short events, milliseconds wait) {
  pollfd entry = {.fd = fd, .events = events, .revents = 0};
  return ::poll(&entry, 1, static_cast<int>(wait.count())) > 0;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const std::string& address, int flags) {
  auto [host, port] = split(address);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int result =
      ::getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (result != 0) fail("{}: {}", address, ::gai_strerror(result));
  return {found, ::freeaddrinfo};
}

// Connected, or -1.
int try_connect(const addrinfo& to) {
  const int fd =
      ::socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to.ai_protocol);
  if (fd < 0) return -1;
  int error = ::connect(fd, to.ai_addr, to.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    socklen_t length = sizeof(error);
    const bool answered = wait_for(fd, POLLOUT, std::min(time_left(), milliseconds(2000)));
    if (!answered || ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
      error = ETIMEDOUT;
  }
  if (error == 0) return fd;
  ::close(fd);
  return -1;
}

}  // namespace

Link::Link(Link&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      name_(std::move(other.name_)),
      unread_(std::move(other.unread_)) {}

Link::~Link() {
  if (fd_ >= 0) ::close(fd_);
}

bool Link::offer(std::string_view line) {
  std::string rest(line);
  rest += '\n';
  while (!rest.empty()) {
    const ssize_t sent = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      rest.erase(0, static_cast<size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      return false;
    } else if (!wait_for(fd_, POLLOUT, time_left())) {
      fail("{} does not read", name_);
    }
  }
  return true;
}

void Link::send(std::string_view line) {
  if (offer(line)) return;
  // What it said before it ended says more.
  for (std::string last; receive(last, milliseconds(0)) == Received::kLine;) {
  }
  fail("{} has ended", name_);
}

Received Link::receive(std::string& line, milliseconds wait) {
  for (;;) {
    const size_t end = unread_.find('\n');
    if (end != std::string::npos) {
      line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      if (line.starts_with(kFailed)) fail("{} gives up: {}", name_, line.substr(kFailed.size()));
      return Received::kLine;
    }
    if (unread_.size() > kLongestLine) return Received::kClosed;
    if (!wait_for(fd_, POLLIN, wait)) return Received::kNothing;
    char bytes[4096];
    const ssize_t got = ::recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got > 0) {
      unread_.append(bytes, static_cast<size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      return Received::kClosed;
    }
  }
}

std::string Link::expect_line() {
  std::string line;
  switch (receive(line, time_left())) {
    case Received::kLine:
      return line;
    case Received::kNothing:
      fail("{} does not answer in time", name_);
    case Received::kClosed:
      fail("{} has ended", name_);
  }
  fail("unreachable");
}

std::string Link::expect(std::string_view word) {
  const std::string line = expect_line();
  if (line == word) return {};
  if (!line.starts_with(word) || line[word.size()] != ' ')
    fail("{} says '{}', not '{}'", name_, line, word);
  return line.substr(word.size() + 1);
}

Listener::Listener(const std::string& address) {
  const Addresses found = resolve(address, AI_PASSIVE);
  fd_ = ::socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                 found->ai_protocol);
  const int on = 1;
  if (fd_ < 0 || ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(fd_, found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd_, 16) != 0) {
    fail("cannot listen on {}: {}", address, std::strerror(errno));
  }
}

Listener::~Listener() {
  if (fd_ >= 0) ::close(fd_);
}

std::string Listener::address() const {
  sockaddr_storage name = {};
  socklen_t length = sizeof(name);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&name), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&name), length, host, sizeof(host), port,
                    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    fail("the address of the listening socket is not known");
  }
  const bool v6 = name.ss_family == AF_INET6;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", host, v6 ? "]" : "", port);
}

Link Listener::accept() {
  for (;;) {
    if (!wait_for(fd_, POLLIN, time_left())) fail("not all nodes have connected in time");
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) return {fd, "somebody"};
  }
}

Link connect_to(const std::string& address) {
  const Addresses found = resolve(address, 0);
  do {
    for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
      const int fd = try_connect(*at);
      if (fd >= 0) return {fd, "the home"};
    }
    std::this_thread::sleep_for(milliseconds(50));
  } while (time_left() > milliseconds(0));
  fail("nobody listens on {}", address);
}

HostPort split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) fail("{}: expected HOST:PORT", address);
  return {address.substr(0, colon), address.substr(colon + 1)};
}

}  // namespace wordcount
