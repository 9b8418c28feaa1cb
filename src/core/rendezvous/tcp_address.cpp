#include "core/rendezvous/tcp_address.hpp"

#include <netdb.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "core/base/cause.hpp"

namespace cmi::rendezvous {

namespace {

constexpr int kBacklog = 64;

Status resolve_failed(int error) {
  if (error == EAI_MEMORY || (error == EAI_SYSTEM && short_of_descriptors(errno))) {
    return Status::kNoMem;
  }
  if (error == EAI_AGAIN || error == EAI_SYSTEM) {
    return because(Status::kReconfig, "whether there is such a host is not known now");
  }
  return because(Status::kInval, "there is no such host");
}

Status listen_failed(int error) {
  if (error == EADDRINUSE) return because(Status::kInval, "another socket is at this port");
  if (error == EACCES || error == EPERM) {
    return because(Status::kPerm, "this port is not for every user");
  }
  if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) {
    return because(Status::kInval, "the host is not this machine");
  }
  return because(Status::kNoMem, "no descriptors, or no memory");
}

// 0, or an errno.
int listen_on(const Fd& fd, const TcpAddress& address) {
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // 0.0.0.0 beside it has a socket of its own.
  if (address.at.ss_family == AF_INET6) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
  const bool listens =
      ::bind(fd.get(), address.get(), address.length) == 0 && ::listen(fd.get(), kBacklog) == 0;
  return listens ? 0 : errno;
}

}  // namespace

bool short_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

Result<std::vector<TcpAddress>> resolve(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return resolve_failed(error);
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  std::vector<TcpAddress> all;
  for (const addrinfo* a = found; a != nullptr && all.size() < kMaxAddresses; a = a->ai_next) {
    TcpAddress address{};
    if (a->ai_addrlen > sizeof address.at) continue;
    std::memcpy(&address.at, a->ai_addr, a->ai_addrlen);
    address.length = a->ai_addrlen;
    all.push_back(address);
  }
  if (all.empty()) return because(Status::kInval, "there is no such host");
  return all;
}

Result<std::vector<Fd>> listen_at(const std::vector<TcpAddress>& addresses) {
  std::vector<Fd> listening;
  int error = 0;
  for (const TcpAddress& address : addresses) {
    Fd fd(::socket(address.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int failed = fd ? listen_on(fd, address) : errno;
    if (failed == 0) {
      listening.push_back(std::move(fd));
    } else if (failed == EADDRINUSE || error == 0) {
      error = failed;
    }
  }
  if (listening.empty() || error == EADDRINUSE) return listen_failed(error);
  return listening;
}

}  // namespace cmi::rendezvous
