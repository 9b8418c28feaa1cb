#include "core/rendezvous/tcp_finder.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "core/base/cause.hpp"
#include "core/base/fd.hpp"
#include "core/rendezvous/exchange.hpp"

namespace cmi::rendezvous {

namespace {

// Whether that comes in time.
bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const Nanos left = deadline.left();
    const int n = ::poll(&entry, 1, static_cast<int>(left / kMilli + (left % kMilli != 0)));
    if (n > 0) return true;
    if (n == 0 && deadline.passed()) return false;
    if (n < 0 && errno != EINTR) return false;
  }
}

bool connected(int fd, const TcpAddress& to, Deadline deadline) {
  if (::connect(fd, to.get(), to.length) == 0) return true;
  if (errno != EINPROGRESS && errno != EINTR) return false;
  int error = 0;
  socklen_t length = sizeof error;
  return wait_for(fd, POLLOUT, deadline) &&
         ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

bool send_all(int fd, std::string_view text, Deadline deadline) {
  while (!text.empty()) {
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      text.remove_prefix(static_cast<size_t>(sent));
    } else if (errno != EINTR && (errno != EAGAIN || !wait_for(fd, POLLOUT, deadline))) {
      return false;
    }
  }
  return true;
}

}  // namespace

Result<Offer> TcpFinder::ask(Nanos patience) {
  if (addresses_.empty()) {
    auto found = resolve(at_.host, at_.port);
    hopeless_ = found.status() == Status::kInval;
    if (!found) return found.status();
    addresses_ = found.take();
  }
  const Deadline deadline = Deadline::in(patience);
  for (const TcpAddress& address : addresses_) {
    const Fd fd(::socket(address.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd && short_of_descriptors(errno)) return because(Status::kNoMem, "no descriptors");
    if (fd && connected(fd.get(), address, deadline)) return ask_over(fd.get(), deadline);
  }
  return because(Status::kReconfig, "nobody listens there");
}

Result<Offer> TcpFinder::ask_over(int fd, Deadline deadline) const {
  Asker asker(name_, at_.secret);
  std::string out = asker.first();
  for (;;) {
    if (!send_all(fd, out, deadline)) return asker.result();
    out.clear();
    if (!wait_for(fd, POLLIN, deadline)) {
      return because(Status::kReconfig, "what listens there does not answer");
    }
    std::array<char, 2048> bytes;
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return asker.result();
    if (!asker.take({bytes.data(), static_cast<size_t>(got)}, &out)) return asker.result();
  }
}

}  // namespace cmi::rendezvous
