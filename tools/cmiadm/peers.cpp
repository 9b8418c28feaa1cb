// See peers.hpp.
#include "peers.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <cstring>

namespace cmi::adm {

std::string door_text(Bytes door) {
  sockaddr_storage a{};
  char text[INET6_ADDRSTRLEN] = {};
  if (door.size() >= sizeof(sockaddr_in) && door.size() <= sizeof a) {
    std::memcpy(&a, door.data(), door.size());
    if (a.ss_family == AF_INET && door.size() == sizeof(sockaddr_in)) {
      const auto* in = reinterpret_cast<const sockaddr_in*>(&a);
      inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
      return fmt::format("{}:{}", text, ntohs(in->sin_port));
    }
    if (a.ss_family == AF_INET6 && door.size() == sizeof(sockaddr_in6)) {
      const auto* in = reinterpret_cast<const sockaddr_in6*>(&a);
      inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text);
      return fmt::format("[{}]:{}", text, ntohs(in->sin6_port));
    }
  }
  std::string out;
  for (std::byte b : door) out += fmt::format("{:02x}", static_cast<unsigned>(b));
  return out;
}

std::string fingerprint(uint32_t token_fingerprint) {
  return fmt::format("{:08x}", token_fingerprint);
}

}  // namespace cmi::adm
