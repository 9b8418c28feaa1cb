// The sockets at which a context listens for lifelines: one for each of its IP addresses, all at
// the same port. They keep a descriptor in reserve, so that a caller can be accepted where no other
// descriptor is left.
//
// Threads: one, the service thread.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <vector>

#include "core/base/codec.hpp"
#include "core/base/fd.hpp"
#include "core/base/status.hpp"

namespace cmi::fabric {

class LifelineListeners {
 public:
  // The IP address of a context's listener, with another port. The length in `to`; 0: it is none.
  static socklen_t beside(Bytes listener, uint16_t port, sockaddr_storage* to);
  // What is written to this socket is not held back for more.
  static void send_at_once(int fd);

  // Beside these listeners. kNotSupp: none is an IP address. kHw: no port is free at all of them.
  Status open(const std::vector<Bytes>& listeners);
  uint16_t port() const { return port_; }
  bool has(int fd) const;  // is one of these sockets

  // Has `epoll` say when somebody calls. False: some socket could not be added, and ignored().
  bool watch(int epoll);
  // No longer, until the next watch().
  void ignore(int epoll);
  bool ignored() const { return ignored_; }

  // The next caller of this socket; none waits, or *short_of: the process has no descriptor left.
  Fd accept(int listening, bool* short_of);

  void forget_in_child();  // after fork: closes the descriptors, touches nothing else

 private:
  uint16_t port_ = 0;
  std::vector<Fd> sockets_;
  Fd spare_;
  bool ignored_ = false;
};

}  // namespace cmi::fabric
