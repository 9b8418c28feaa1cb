#include "fabric/lifeline_listeners.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/log.hpp"

namespace cmi::fabric {

namespace {

constexpr int kPortTries = 20;  // for a port that is free at all addresses

bool short_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

// One socket for each address, all at one port: that of the first, which the kernel chooses.
// kInval: somebody else has it at another address.
Result<std::vector<Fd>> listen_at(const std::vector<Bytes>& listeners, uint16_t* port) {
  std::vector<Fd> all_listening;
  std::vector<sockaddr_storage> taken;
  *port = 0;
  for (const Bytes listener : listeners) {
    sockaddr_storage at{};
    socklen_t len = LifelineListeners::beside(listener, *port, &at);
    const auto same = [&](const sockaddr_storage& t) { return std::memcmp(&t, &at, len) == 0; };
    if (len == 0 || std::any_of(taken.begin(), taken.end(), same)) continue;
    auto* address = reinterpret_cast<sockaddr*>(&at);
    Fd fd(::socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return Status::kNoMem;
    if (::bind(fd.get(), address, len) != 0 || ::listen(fd.get(), SOMAXCONN) != 0 ||
        ::getsockname(fd.get(), address, &len) != 0) {
      const bool again = errno == EADDRINUSE && *port != 0;
      if (!again) trace(kFacIni, kError, "lifelines: cannot listen: {}", std::strerror(errno));
      return again ? Status::kInval : Status::kHw;
    }
    *port = ntohs(at.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&at)->sin_port
                                          : reinterpret_cast<sockaddr_in6*>(&at)->sin6_port);
    taken.push_back(at);
    all_listening.push_back(std::move(fd));
  }
  return all_listening;
}

}  // namespace

socklen_t LifelineListeners::beside(Bytes listener, uint16_t port, sockaddr_storage* to) {
  if (listener.size() > sizeof *to || listener.size() < sizeof(sockaddr_in)) return 0;
  std::memcpy(to, listener.data(), listener.size());
  if (to->ss_family == AF_INET && listener.size() == sizeof(sockaddr_in)) {
    reinterpret_cast<sockaddr_in*>(to)->sin_port = htons(port);
    return sizeof(sockaddr_in);
  }
  if (to->ss_family == AF_INET6 && listener.size() == sizeof(sockaddr_in6)) {
    reinterpret_cast<sockaddr_in6*>(to)->sin6_port = htons(port);
    return sizeof(sockaddr_in6);
  }
  return 0;
}

void LifelineListeners::send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Status LifelineListeners::open(const std::vector<Bytes>& listeners) {
  auto listening = listen_at(listeners, &port_);
  for (int tries = 1; listening.status() == Status::kInval && tries < kPortTries; ++tries) {
    listening = listen_at(listeners, &port_);
  }
  if (!listening) return listening.status() == Status::kInval ? Status::kHw : listening.status();
  if (listening->empty()) return Status::kNotSupp;
  sockets_ = listening.take();
  spare_.reset(::eventfd(0, EFD_CLOEXEC));
  return spare_ ? Status::kOk : Status::kNoMem;
}

bool LifelineListeners::watch(int epoll) {
  ignored_ = false;
  for (const Fd& l : sockets_) {
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.fd = l.get();
    const bool added = ::epoll_ctl(epoll, EPOLL_CTL_ADD, l.get(), &e) == 0;
    ignored_ = ignored_ || !(added || errno == EEXIST);
  }
  return !ignored_;
}

void LifelineListeners::ignore(int epoll) {
  for (const Fd& l : sockets_) ::epoll_ctl(epoll, EPOLL_CTL_DEL, l.get(), nullptr);
  ignored_ = true;
}

bool LifelineListeners::has(int fd) const {
  return std::any_of(sockets_.begin(), sockets_.end(), [&](const Fd& l) { return l.get() == fd; });
}

Fd LifelineListeners::accept(int listening, bool* short_of) {
  Fd fd(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd && short_of_descriptors(errno) && spare_) {
    spare_.reset();
    fd.reset(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  }
  *short_of = !fd && short_of_descriptors(errno);
  if (!spare_) spare_.reset(::eventfd(0, EFD_CLOEXEC));
  if (fd) send_at_once(fd.get());
  return fd;
}

void LifelineListeners::forget_in_child() {
  for (const Fd& fd : sockets_) ::close(fd.get());
  ::close(spare_.get());
}

}  // namespace cmi::fabric
