// The thread that answers finders. It holds the lock but while it sleeps; no call in it waits.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "core/base/library_thread.hpp"
#include "core/rendezvous/tcp_offers.hpp"

namespace cmi::rendezvous {

namespace {

constexpr Nanos kRest = 100 * kMilli;
constexpr int kAcceptsInARow = 16;  // then the others have their turn

}  // namespace

void TcpOffers::run() {
  pthread_setname_np(pthread_self(), "cmi-offers");
  const LibraryThread here;
  std::array<epoll_event, 16> events;
  int timeout = -1;
  for (;;) {
    const int n =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout);
    Guard g(mu_);
    if (stopped_) return;
    for (int i = 0; i < n; ++i) {
      try {
        on_event(events[static_cast<size_t>(i)].data.fd, events[static_cast<size_t>(i)].events);
      } catch (const std::bad_alloc&) {
        rest_from_accepting(now());
      }
    }
    timeout = sleep_time(now());
  }
}

// Ends what has had its time, and says how many milliseconds are left until the next one has.
int TcpOffers::sleep_time(Nanos t) {
  while (!connections_.empty() && connections_.front().until.at <= t) close(connections_.begin());
  if (resting_until_ != 0 && resting_until_ <= t) accept_again(t);
  Nanos next = resting_until_;
  if (!connections_.empty() && (next == 0 || connections_.front().until.at < next)) {
    next = connections_.front().until.at;
  }
  return next == 0 ? -1 : static_cast<int>((next - t) / kMilli + 1);
}

// What an event is about may be gone, and its number another's by now; no call here waits.
void TcpOffers::on_event(int fd, uint32_t events) {
  for (auto c = connections_.begin(); c != connections_.end(); ++c) {
    if (c->fd.get() != fd) continue;
    bool goes_on = false;
    try {
      goes_on = converse(*c, events);
    } catch (const std::bad_alloc&) {
    }
    if (!goes_on) close(c);
    return;
  }
  for (Listener& l : listeners_) {
    for (const Fd& socket : l.sockets) {
      if (socket.get() == fd) return accept_from(l, fd);
    }
  }
}

void TcpOffers::accept_from(Listener& at, int listening) {
  for (int i = 0; i < kAcceptsInARow; ++i) {
    Fd fd(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (short_of_descriptors(errno)) rest_from_accepting(now());
      return;
    }
    add_connection(at, std::move(fd));
  }
}

void TcpOffers::add_connection(Listener& at, Fd fd) {
  if (connections_.size() >= kMaxConnections) close(connections_.begin());
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int number = fd.get();
  // The connection may outlive its listener.
  const auto lookup = [this, host = at.host, port = at.port](const std::string& name)
                          CMI_TSA(no_thread_safety_analysis) -> std::optional<std::string> {
    for (const Listener& l : listeners_) {
      if (l.host != host || l.port != port) continue;
      const auto found = l.offers.find(name);
      if (found != l.offers.end()) return found->second;
    }
    return std::nullopt;
  };
  connections_.push_back(
      {std::move(fd), Answerer(lookup, at.secret), Deadline::in(kConversation), {}, false});
  open_.add(number);
  if (!watch(number)) close(std::prev(connections_.end()));
}

// False: it ends.
bool TcpOffers::converse(Connection& c, uint32_t events) {
  if (!c.last && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    std::array<char, Answerer::kMaxLine> bytes;
    const ssize_t got = ::recv(c.fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got == 0) return false;
    if (got < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (got > 0) c.last = !c.answerer.take({bytes.data(), static_cast<size_t>(got)}, &c.out);
  }
  return send_rest(c) && !(c.last && c.out.empty());
}

// False: the finder has gone.
bool TcpOffers::send_rest(Connection& c) {
  while (!c.out.empty()) {
    const ssize_t sent =
        ::send(c.fd.get(), c.out.data(), c.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) return false;
    if (sent < 0) break;
    c.out.erase(0, static_cast<size_t>(sent));
  }
  // Nothing is read while something is to be sent: what is kept for a finder has a bound.
  epoll_event e{};
  e.events = c.out.empty() ? EPOLLIN : EPOLLOUT;
  e.data.fd = c.fd.get();
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, c.fd.get(), &e) == 0;
}

void TcpOffers::close(std::list<Connection>::iterator c) {
  open_.remove(c->fd.get());
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, c->fd.get(), nullptr);
  connections_.erase(c);
}

// Without descriptors the listeners would stay readable.
void TcpOffers::rest_from_accepting(Nanos t) {
  for (const Listener& l : listeners_) {
    for (const Fd& fd : l.sockets) {
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd.get(), nullptr);
    }
  }
  resting_until_ = t + kRest;
}

void TcpOffers::accept_again(Nanos t) {
  resting_until_ = 0;
  for (const Listener& l : listeners_) {
    for (const Fd& fd : l.sockets) {
      if (!watch(fd.get()) && errno != EEXIST) resting_until_ = t + kRest;
    }
  }
}

}  // namespace cmi::rendezvous
