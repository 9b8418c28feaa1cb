// One connect attempt, closed again at once.
#include "fabric/reach.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "core/base/fd.hpp"

namespace cmi::fabric {

Reach probe_door(Bytes address, Nanos wait) {
  sockaddr_storage to{};
  if (address.size() > sizeof to || address.size() < sizeof(sockaddr_in)) return Reach::kUnknown;
  std::memcpy(&to, address.data(), address.size());
  const bool v4 = to.ss_family == AF_INET && address.size() == sizeof(sockaddr_in);
  const bool v6 = to.ss_family == AF_INET6 && address.size() == sizeof(sockaddr_in6);
  if (!v4 && !v6) return Reach::kUnknown;
  Fd fd(socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Reach::kUnknown;
  const int rc =
      connect(fd.get(), reinterpret_cast<sockaddr*>(&to), static_cast<socklen_t>(address.size()));
  int error = rc == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd p{fd.get(), POLLOUT, 0};
    timespec ts{wait / kSecond, wait % kSecond};
    socklen_t len = sizeof error;
    if (ppoll(&p, 1, &ts, nullptr) <= 0) return Reach::kUnknown;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &len) != 0) return Reach::kUnknown;
  }
  if (error == 0) return Reach::kListening;
  return error == ECONNREFUSED ? Reach::kRefused : Reach::kUnknown;
}

}  // namespace cmi::fabric
