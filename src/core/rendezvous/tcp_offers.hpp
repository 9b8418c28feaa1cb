// Offers that this process serves itself, each at a host and port. What is offered at one host and
// port shares its sockets, which go with the last of them. A thread of its own answers finders; it
// begins with the first offer, and ends with stop().
//
// Bounds: kMaxListeners hosts and ports, kMaxOffers names in all; kMaxConnections at a time, of
// which the oldest gives way, each for kConversation. What a stranger sends is taken up to the
// bound of exchange.hpp.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/fd.hpp"
#include "core/base/lock.hpp"
#include "core/base/open_sockets.hpp"
#include "core/rendezvous/exchange.hpp"
#include "core/rendezvous/place.hpp"
#include "core/rendezvous/tcp_address.hpp"

namespace cmi::rendezvous {

class TcpOffers {
 public:
  static constexpr size_t kMaxListeners = 16, kMaxOffers = 1024, kMaxConnections = 64;
  static constexpr Nanos kConversation = 5 * kSecond;

  using Addresses = std::vector<TcpAddress>;
  using Resolver =
      std::function<Result<Addresses>(const std::string& host, const std::string& port)>;

  // What looks up hosts is called without the lock, by the thread that offers: finders are
  // answered meanwhile, however long the resolver takes.
  explicit TcpOffers(Resolver resolver = &resolve) : resolver_(std::move(resolver)) {}
  ~TcpOffers() { stop(); }
  TcpOffers(const TcpOffers&) = delete;
  TcpOffers& operator=(const TcpOffers&) = delete;

  // Any thread, with its signals blocked: the thread that is made inherits that.
  // Takes the place of an earlier offer of this name there. kInval: offer or place cannot be, or
  // the place has another secret already; kPerm, kNoMem, kReconfig: as resolve() and listen_at(),
  // or too many.
  Status put(const Place& at, const std::string& name, const Offer& offer);
  // That there was none is kOk.
  Status remove(const Place& at, const std::string& name);

  // Nothing is offered any more, and no descriptor and no thread is left.
  void stop();
  // In a forked child: closes what is the parent's.
  void forget_in_child();

 private:
  struct Listener {
    std::string host, port, secret;
    std::vector<Fd> sockets;
    std::map<std::string, std::string> offers;  // texts by name
  };
  struct Connection {
    Fd fd;
    Answerer answerer;
    Deadline until;
    std::string out;    // what is still to be sent
    bool last = false;  // it ends when that is sent
  };

  Status start() CMI_REQUIRES(mu_);
  Status put_there(Listener& at, const std::string& name, const std::string& text)
      CMI_REQUIRES(mu_);
  Result<Listener*> listener(const Place& at) CMI_REQUIRES(mu_);
  Status new_listener(const Place& at, const Addresses& addresses, const std::string& name,
                      const std::string& text) CMI_REQUIRES(mu_);
  Status open_sockets(Listener& at, const Addresses& addresses) CMI_REQUIRES(mu_);
  void close_sockets(Listener& at) CMI_REQUIRES(mu_);
  size_t offers() const CMI_REQUIRES(mu_);

  // The thread: tcp_serving.cpp.
  void run();
  int sleep_time(Nanos t) CMI_REQUIRES(mu_);
  void on_event(int fd, uint32_t events) CMI_REQUIRES(mu_);
  void accept_from(Listener& at, int listening) CMI_REQUIRES(mu_);
  void add_connection(Listener& at, Fd fd) CMI_REQUIRES(mu_);
  bool converse(Connection& c, uint32_t events) CMI_REQUIRES(mu_);
  bool send_rest(Connection& c) CMI_REQUIRES(mu_);
  void close(std::list<Connection>::iterator c) CMI_REQUIRES(mu_);
  bool watch(int fd) CMI_REQUIRES(mu_);
  void rest_from_accepting(Nanos t) CMI_REQUIRES(mu_);
  void accept_again(Nanos t) CMI_REQUIRES(mu_);

  const Resolver resolver_;
  Mutex mu_;
  std::list<Listener> listeners_ CMI_GUARDED_BY(mu_);
  std::list<Connection> connections_ CMI_GUARDED_BY(mu_);  // the oldest first
  Nanos resting_until_ CMI_GUARDED_BY(mu_) = 0;            // for want of descriptors; 0: not at all
  bool stopped_ CMI_GUARDED_BY(mu_) = false;
  Fd epoll_, waker_;  // set before the thread begins
  std::thread thread_ CMI_GUARDED_BY(mu_);
  OpenSockets<kMaxListeners * kMaxAddresses + kMaxConnections + 2> open_;
};

}  // namespace cmi::rendezvous
