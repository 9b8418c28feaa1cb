// See address.hpp.
#include "fabric/ofi/address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "core/base/fd.hpp"
#include "core/base/log.hpp"

namespace cmi::fabric::ofi {

namespace {
struct Local {
  std::string interface;
  std::string address;  // numeric
  bool loopback = false;
  bool v6 = false;
};

// Link-local IPv6 addresses are left out: they mean nothing to a peer without its own scope id.
std::vector<Local> all_local() {
  std::vector<Local> out;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return out;
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    Local l;
    l.interface = i->ifa_name;
    l.loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
    char text[INET6_ADDRSTRLEN] = {};
    if (i->ifa_addr->sa_family == AF_INET) {
      auto* in = reinterpret_cast<sockaddr_in*>(i->ifa_addr);
      inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      auto* in = reinterpret_cast<sockaddr_in6*>(i->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&in->sin6_addr)) continue;
      inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text);
      l.v6 = true;
    } else {
      continue;
    }
    l.address = text;
    out.push_back(std::move(l));
  }
  return out;
}

// IPv4 before IPv6, else in the kernel's order.
template <class Wanted>
const Local* pick(const std::vector<Local>& all, Wanted wanted) {
  const Local* best = nullptr;
  for (const Local& l : all) {
    if (wanted(l) && (best == nullptr || (best->v6 && !l.v6))) best = &l;
  }
  return best;
}

std::string text_of(const sockaddr_storage& a) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* raw =
      a.ss_family == AF_INET
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(a).sin_addr)
          : &reinterpret_cast<const sockaddr_in6&>(a).sin6_addr;
  return inet_ntop(a.ss_family, raw, text, sizeof text) == nullptr ? std::string() : text;
}

// The address that this machine would use toward `other`, a numeric one; empty where there is no
// way. Nothing is sent: a datagram socket only looks the way up.
std::string address_toward(int family, const char* other) {
  sockaddr_storage to{};
  to.ss_family = static_cast<sa_family_t>(family);
  socklen_t len = sizeof(sockaddr_in6);
  if (family == AF_INET) {
    auto& in = reinterpret_cast<sockaddr_in&>(to);
    in.sin_port = htons(9);
    inet_pton(family, other, &in.sin_addr);
    len = sizeof in;
  } else {
    auto& in = reinterpret_cast<sockaddr_in6&>(to);
    in.sin6_port = htons(9);
    inet_pton(family, other, &in.sin6_addr);
  }
  const Fd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t own_len = sizeof own;
  if (!fd || connect(fd.get(), reinterpret_cast<sockaddr*>(&to), len) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &own_len) != 0) {
    return {};
  }
  return text_of(own);
}

// As bridges and tunnels do not.
bool has_device(const Local& l) {
  return access(("/sys/class/net/" + l.interface + "/device").c_str(), F_OK) == 0;
}

// Where machines of no network of ours are reached from; else what belongs to a device; else
// anything.
const Local* reached_by_others(const std::vector<Local>& all) {
  for (const std::string& own :
       {address_toward(AF_INET, "192.0.2.1"), address_toward(AF_INET6, "2001:db8::1")}) {
    const Local* l = pick(all, [&](const Local& x) { return !x.loopback && x.address == own; });
    if (l != nullptr) return l;
  }
  const Local* l = pick(all, [&](const Local& x) { return !x.loopback && has_device(x); });
  return l != nullptr ? l : pick(all, [](const Local& x) { return !x.loopback; });
}

// Whether a socket can listen at the address of loopback. Where there are no sockets to ask with,
// what needs them next says so better.
bool has_loopback(int family) {
  const Fd fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) return errno != EAFNOSUPPORT;
  // An interface that was up and is down again keeps its IPv4 address, and sockets take it.
  ifreq lo{};
  std::strcpy(lo.ifr_name, "lo");
  if (ioctl(fd.get(), SIOCGIFFLAGS, &lo) == 0 && (lo.ifr_flags & IFF_UP) == 0) return false;
  sockaddr_storage a{};
  a.ss_family = static_cast<sa_family_t>(family);
  socklen_t len = sizeof(sockaddr_in);
  if (family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(a).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  } else {
    reinterpret_cast<sockaddr_in6&>(a).sin6_addr = in6addr_loopback;
    len = sizeof(sockaddr_in6);
  }
  return bind(fd.get(), reinterpret_cast<sockaddr*>(&a), len) == 0;
}

// The machine may have IPv6 alone. Empty: lo is down.
std::string loopback_address() {
  if (has_loopback(AF_INET)) return "127.0.0.1";
  return has_loopback(AF_INET6) ? "::1" : "";
}

// The canonical text of a numeric address, or empty.
std::string canonical(const std::string& text) {
  unsigned char raw[sizeof(in6_addr)];
  char out[INET6_ADDRSTRLEN];
  for (int family : {AF_INET, AF_INET6}) {
    if (inet_pton(family, text.c_str(), raw) == 1) return inet_ntop(family, raw, out, sizeof out);
  }
  return {};
}
}  // namespace

Result<std::string> local_address(const std::string& wish) {
  if (wish.empty()) {
    if (std::string loopback = loopback_address(); !loopback.empty()) return loopback;
    alert(kFacIni,
          "the loopback interface is down (ip link set lo up), and CMI_ADDRESS names no other");
    return Status::kNotSupp;
  }
  const std::vector<Local> all = all_local();
  if (wish == "auto") {
    const Local* l = reached_by_others(all);
    if (l != nullptr) return l->address;
    alert(kFacIni, "address auto: no interface but loopback is up");
    return Status::kInval;
  }
  if (const std::string address = canonical(wish); !address.empty()) {
    // All of 127/8 is ours without being listed.
    if (address.rfind("127.", 0) == 0) return address;
    if (pick(all, [&](const Local& x) { return x.address == address; }) != nullptr) return address;
    alert(kFacIni, "{} is not an address of this machine", wish);
    return Status::kInval;
  }
  const Local* l = pick(all, [&](const Local& x) { return x.interface == wish; });
  if (l != nullptr) return l->address;
  alert(kFacIni, "{} is neither an address nor an interface with one", wish);
  return Status::kInval;
}

Result<std::vector<std::string>> reachable_addresses() {
  auto first = local_address("auto");
  if (!first) return first.status();
  std::vector<std::string> found{*first};
  const std::vector<Local> all = all_local();
  const bool devices = std::any_of(all.begin(), all.end(), has_device);
  std::set<std::pair<std::string, bool>> taken;
  for (const Local& l : all) {
    if (l.address == *first) taken.insert({l.interface, l.v6});
  }
  for (const Local& l : all) {
    if (l.loopback || (devices && !has_device(l))) continue;
    if (taken.insert({l.interface, l.v6}).second) found.push_back(l.address);
  }
  if (std::string loopback = loopback_address(); !loopback.empty()) found.push_back(loopback);
  return found;
}

}  // namespace cmi::fabric::ofi
