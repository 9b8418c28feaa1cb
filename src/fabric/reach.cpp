// Connect attempts, closed again at once.
#include "fabric/reach.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "core/base/fault_point.hpp"
#include "core/base/fd.hpp"

namespace cmi::fabric {

namespace {
struct Attempt {
  Fd fd;
  Reach found = Reach::kUnknown;  // fd: not known yet
};

Attempt start_attempt(Bytes address) {
  Attempt a;
  sockaddr_storage to{};
  if (fault_point_fails("listener_out_of_reach")) return a;
  if (address.size() > sizeof to || address.size() < sizeof(sockaddr_in)) return a;
  std::memcpy(&to, address.data(), address.size());
  const bool v4 = to.ss_family == AF_INET && address.size() == sizeof(sockaddr_in);
  const bool v6 = to.ss_family == AF_INET6 && address.size() == sizeof(sockaddr_in6);
  if (!v4 && !v6) return a;
  Fd fd(socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return a;
  const int rc =
      connect(fd.get(), reinterpret_cast<sockaddr*>(&to), static_cast<socklen_t>(address.size()));
  if (rc == 0) {
    a.found = Reach::kListening;
  } else if (errno == EINPROGRESS) {
    a.fd = std::move(fd);
  } else if (errno == ECONNREFUSED) {
    a.found = Reach::kRefused;
  }
  return a;
}

void end_attempt(Attempt* a) {
  int error = 0;
  socklen_t len = sizeof error;
  if (getsockopt(a->fd.get(), SOL_SOCKET, SO_ERROR, &error, &len) == 0) {
    a->found = error == 0              ? Reach::kListening
               : error == ECONNREFUSED ? Reach::kRefused
                                       : Reach::kUnknown;
  }
  a->fd.reset();
}
}  // namespace

std::vector<Reach> probe_listeners(const std::vector<ListenerAddress>& listeners, Nanos wait) {
  const Deadline deadline = Deadline::in(wait);
  std::vector<Attempt> attempts;
  attempts.reserve(listeners.size());
  for (auto& listener : listeners) attempts.push_back(start_attempt(listener.blob));
  for (;;) {
    std::vector<pollfd> polls;
    std::vector<Attempt*> waiting;
    for (auto& a : attempts) {
      if (!a.fd) continue;
      polls.push_back({a.fd.get(), POLLOUT, 0});
      waiting.push_back(&a);
    }
    const Nanos left = deadline.left();
    timespec ts{left / kSecond, left % kSecond};
    if (polls.empty() || ppoll(polls.data(), polls.size(), &ts, nullptr) <= 0) break;
    for (size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].revents != 0) end_attempt(waiting[i]);
    }
  }
  std::vector<Reach> found;
  for (size_t i = 0; i < listeners.size(); ++i) {
    const bool tcp = listeners[i].provider.find("verbs") == std::string::npos;
    const Reach r = attempts[i].found;
    found.push_back(r == Reach::kRefused && !tcp ? Reach::kListening : r);
  }
  return found;
}

Reach probe_listener(const ListenerAddress& listener, Nanos wait) {
  return probe_listeners({listener}, wait)[0];
}

Reach probe_any(const std::vector<ListenerAddress>& listeners, Nanos wait) {
  const std::vector<Reach> found = probe_listeners(listeners, wait);
  const auto all = [&](Reach r) {
    return !found.empty() &&
           std::all_of(found.begin(), found.end(), [&](Reach f) { return f == r; });
  };
  if (std::find(found.begin(), found.end(), Reach::kListening) != found.end()) {
    return Reach::kListening;
  }
  return all(Reach::kRefused) ? Reach::kRefused : Reach::kUnknown;
}

namespace {
// Address and family without the port. AF_UNSPEC: none of the internet's.
sockaddr_storage host_of(Bytes address) {
  sockaddr_storage a{};
  if (address.size() > sizeof a || address.size() < sizeof(sockaddr_in)) return a;
  std::memcpy(&a, address.data(), address.size());
  const bool v4 = a.ss_family == AF_INET && address.size() == sizeof(sockaddr_in);
  const bool v6 = a.ss_family == AF_INET6 && address.size() == sizeof(sockaddr_in6);
  if (!v4 && !v6) a.ss_family = AF_UNSPEC;
  if (v4) reinterpret_cast<sockaddr_in&>(a).sin_port = 0;
  if (v6) reinterpret_cast<sockaddr_in6&>(a).sin6_port = 0;
  return a;
}

bool loopback(const sockaddr_storage& a) {
  if (a.ss_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in&>(a).sin_addr.s_addr) >> 24) == 127;
  return a.ss_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(a).sin6_addr);
}

// The address's own bytes, without family and port.
Bytes host_bytes(const sockaddr_storage& a) {
  const auto* v4 = &reinterpret_cast<const sockaddr_in&>(a).sin_addr;
  const auto* v6 = &reinterpret_cast<const sockaddr_in6&>(a).sin6_addr;
  return a.ss_family == AF_INET ? std::as_bytes(std::span(v4, 1)) : std::as_bytes(std::span(v6, 1));
}

bool same_host(const sockaddr_storage& a, const sockaddr_storage& b) {
  return a.ss_family == b.ss_family && std::ranges::equal(host_bytes(a), host_bytes(b));
}

// A machine sends to an address of its own from that same address. That a socket can be bound to it
// proves nothing: a machine may be set up to allow any address there (ip_nonlocal_bind).
bool of_this_machine(const sockaddr_storage& a) {
  const Fd fd(socket(a.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage to = a, from{};
  constexpr in_port_t kAny = 9;  // nothing is sent
  if (a.ss_family == AF_INET) reinterpret_cast<sockaddr_in&>(to).sin_port = htons(kAny);
  if (a.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(to).sin6_port = htons(kAny);
  const socklen_t len = a.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  socklen_t room = sizeof from;
  return fd && connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), len) == 0 &&
         getsockname(fd.get(), reinterpret_cast<sockaddr*>(&from), &room) == 0 &&
         same_host(from, a);
}

// Whether an interface that has the one address says that the other is in its subnet.
bool same_subnet(const sockaddr_storage& own, const sockaddr_storage& other) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_netmask == nullptr ||
        i->ifa_addr->sa_family != own.ss_family) {
      continue;
    }
    const size_t len = own.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    sockaddr_storage at{}, mask{};
    std::memcpy(&at, i->ifa_addr, len);
    std::memcpy(&mask, i->ifa_netmask, len);
    mask.ss_family = own.ss_family;  // the kernel leaves it open
    if (!same_host(at, own)) continue;
    const Bytes a = host_bytes(own), b = host_bytes(other), m = host_bytes(mask);
    bool same = true;
    for (size_t k = 0; k < a.size(); ++k) same = same && ((a[k] ^ b[k]) & m[k]) == std::byte{0};
    if (same) return true;
  }
  return false;
}

socklen_t length_of(const sockaddr_storage& a) {
  return a.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

void set_port(sockaddr_storage* a, uint16_t port) {
  if (a->ss_family == AF_INET) reinterpret_cast<sockaddr_in*>(a)->sin_port = htons(port);
  if (a->ss_family == AF_INET6) reinterpret_cast<sockaddr_in6*>(a)->sin6_port = htons(port);
}
}  // namespace

// Nothing is sent: a datagram socket only looks the way up.
Distance distance(Bytes own, Bytes theirs) {
  const sockaddr_storage we = host_of(own);
  sockaddr_storage they = host_of(theirs);
  if (we.ss_family == AF_UNSPEC || we.ss_family != they.ss_family) return Distance::kUnknown;
  if (of_this_machine(they) || same_subnet(we, they)) return Distance::kDirect;
  constexpr uint16_t kDiscard = 9;
  set_port(&they, kDiscard);
  const Fd fd(socket(they.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return Distance::kUnknown;
  sockaddr_storage from{};
  socklen_t len = sizeof from;
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&they), length_of(they)) != 0) {
    return errno == ENETUNREACH || errno == EHOSTUNREACH ? Distance::kNoWay : Distance::kUnknown;
  }
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&from), &len) != 0) {
    return Distance::kUnknown;
  }
  return same_host(from, we) ? Distance::kRouted : Distance::kUnknown;
}

std::string listener_text(Bytes listener) {
  sockaddr_storage a = host_of(listener);
  char text[INET6_ADDRSTRLEN] = {};
  if (a.ss_family != AF_UNSPEC) {
    inet_ntop(a.ss_family, host_bytes(a).data(), text, sizeof text);
    std::memcpy(&a, listener.data(), listener.size());
    if (a.ss_family == AF_INET) {
      return fmt::format("{}:{}", text, ntohs(reinterpret_cast<sockaddr_in&>(a).sin_port));
    }
    return fmt::format("[{}]:{}", text, ntohs(reinterpret_cast<sockaddr_in6&>(a).sin6_port));
  }
  std::string out;
  for (std::byte b : listener) out += fmt::format("{:02x}", static_cast<unsigned>(b));
  return out;
}

bool may_be_probed(const ListenerAddress& listener) {
  return host_of(listener.blob).ss_family != AF_UNSPEC;
}

bool is_loopback(Bytes address) { return loopback(host_of(address)); }

bool is_of_this_machine(Bytes address) {
  const sockaddr_storage a = host_of(address);
  return a.ss_family != AF_UNSPEC && of_this_machine(a);
}

bool is_listener(Bytes own, Bytes theirs) {
  // What addresses of other kinds look like only their provider knows.
  if (host_of(own).ss_family == AF_UNSPEC) return !theirs.empty();
  const sockaddr_storage a = host_of(theirs);
  if (a.ss_family == AF_UNSPEC) return false;
  const Bytes host = host_bytes(a);
  const auto zero = [](std::byte b) { return b == std::byte{0}; };
  // At the same place in both families.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  sockaddr_in in;
  std::memcpy(&in, theirs.data(), sizeof in);
  return in.sin_port != 0 && !std::all_of(host.begin(), host.end(), zero);
}

const char* why_out_of_reach(Bytes own, Bytes theirs) {
  const sockaddr_storage we = host_of(own), they = host_of(theirs);
  if (we.ss_family == AF_UNSPEC || they.ss_family == AF_UNSPEC) return nullptr;
  if (we.ss_family != they.ss_family)
    return "one of the two listens at an IPv4 address and the other at one of IPv6";
  if (loopback(we) && !loopback(they) && !of_this_machine(they)) {
    return "this process listens on loopback only, where a home on another machine cannot answer: "
           "CMI_ADDRESS";
  }
  return nullptr;
}

}  // namespace cmi::fabric
