// What is offered, and where: the threads of the client.
#include "core/rendezvous/tcp_offers.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/base/cause.hpp"

namespace cmi::rendezvous {

namespace {
Status too_much() { return because(Status::kNoMem, "this process offers too much"); }
}  // namespace

Status TcpOffers::put(const Place& at, const std::string& name, const Offer& offer) {
  auto text = offer_text(offer);
  if (!text) return text.status();
  {
    Guard g(mu_);
    if (stopped_) return because(Status::kInval, "the context ends");
    const auto there = listener(at);
    if (!there) return there.status();
    if (*there != nullptr) return put_there(**there, name, *text);
    if (offers() >= kMaxOffers) return too_much();
  }
  const auto addresses = resolver_(at.host, at.port);
  if (!addresses) return addresses.status();
  Guard g(mu_);
  // Another thread may have offered there meanwhile, or ended the context.
  if (Status s = start(); !ok(s)) return s;
  const auto there = listener(at);
  if (!there) return there.status();
  if (*there != nullptr) return put_there(**there, name, *text);
  return new_listener(at, *addresses, name, *text);
}

Status TcpOffers::put_there(Listener& at, const std::string& name, const std::string& text) {
  if (at.offers.count(name) == 0 && offers() >= kMaxOffers) return too_much();
  at.offers[name] = text;
  return Status::kOk;
}

Status TcpOffers::remove(const Place& at, const std::string& name) {
  Guard g(mu_);
  const auto l = std::find_if(listeners_.begin(), listeners_.end(), [&](const Listener& other) {
    return other.host == at.host && other.port == at.port;
  });
  if (l == listeners_.end()) return Status::kOk;
  if (l->secret != at.secret) {
    return because(Status::kPerm, "what is offered there has another secret");
  }
  l->offers.erase(name);
  if (!l->offers.empty()) return Status::kOk;
  close_sockets(*l);
  listeners_.erase(l);
  return Status::kOk;
}

size_t TcpOffers::offers() const {
  size_t all = 0;
  for (const Listener& l : listeners_) all += l.offers.size();
  return all;
}

// The one of this place; null: there is none, and room for one.
Result<TcpOffers::Listener*> TcpOffers::listener(const Place& at) {
  for (Listener& l : listeners_) {
    if (l.host != at.host || l.port != at.port) continue;
    if (l.secret == at.secret) return &l;
    return because(Status::kInval, "this process offers there with another secret");
  }
  if (listeners_.size() >= kMaxListeners) {
    return because(Status::kNoMem, "this process offers at too many ports");
  }
  return static_cast<Listener*>(nullptr);
}

Status TcpOffers::new_listener(const Place& at, const Addresses& addresses, const std::string& name,
                               const std::string& text) {
  listeners_.push_back({at.host, at.port, at.secret, {}, {}});
  Status s = open_sockets(listeners_.back(), addresses);
  if (ok(s)) s = put_there(listeners_.back(), name, text);
  if (ok(s)) return s;
  close_sockets(listeners_.back());
  listeners_.pop_back();
  return s;
}

Status TcpOffers::open_sockets(Listener& at, const Addresses& addresses) {
  auto sockets = listen_at(addresses);
  if (!sockets) return sockets.status();
  at.sockets = sockets.take();
  for (const Fd& fd : at.sockets) open_.add(fd.get());
  for (const Fd& fd : at.sockets) {
    if (resting_until_ == 0 && !watch(fd.get())) return Status::kNoMem;
  }
  return Status::kOk;
}

void TcpOffers::close_sockets(Listener& at) {
  for (Fd& fd : at.sockets) {
    open_.remove(fd.get());
    // A process that begins just now may have the descriptor until it executes its program.
    ::shutdown(fd.get(), SHUT_RDWR);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd.get(), nullptr);
    fd.reset();
  }
  at.sockets.clear();
}

bool TcpOffers::watch(int fd) {
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.fd = fd;
  return ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &e) == 0;
}

Status TcpOffers::start() {
  if (stopped_) return because(Status::kInval, "the context ends");
  if (thread_.joinable()) return Status::kOk;
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  waker_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !waker_ || !watch(waker_.get())) {
    return because(Status::kNoMem, "no descriptors, or no memory");
  }
  try {
    thread_ = std::thread(&TcpOffers::run, this);
  } catch (const std::system_error&) {
    return because(Status::kNoMem, "no thread can be had");
  }
  open_.add(epoll_.get());
  open_.add(waker_.get());
  return Status::kOk;
}

void TcpOffers::stop() {
  std::thread last;
  {
    Guard g(mu_);
    if (std::exchange(stopped_, true)) return;
    last.swap(thread_);
  }
  if (!last.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(waker_.get(), &one, sizeof one);
  last.join();
  Guard g(mu_);
  while (!connections_.empty()) close(connections_.begin());
  for (Listener& l : listeners_) close_sockets(l);
  listeners_.clear();
  for (Fd* fd : {&epoll_, &waker_}) {
    open_.remove(fd->get());
    fd->reset();
  }
}

void TcpOffers::forget_in_child() { open_.close_in_child(); }

}  // namespace cmi::rendezvous
