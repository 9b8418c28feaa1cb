// Host and port as addresses of sockets. Any thread; a host that is a name takes as long as the
// system's resolver.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "core/base/fd.hpp"
#include "core/base/status.hpp"

namespace cmi::rendezvous {

struct TcpAddress {
  sockaddr_storage at;
  socklen_t length;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&at); }
};

// At most kMaxAddresses of them, at least one. kInval: there is no such host; kReconfig: that is
// not known now; kNoMem.
inline constexpr size_t kMaxAddresses = 4;
Result<std::vector<TcpAddress>> resolve(const std::string& host, const std::string& port);

// Sockets that listen at all of these addresses which this machine has, at least one; they do not
// block, and nothing here waits. kInval: another socket is at the port, or no address is this
// machine's; kPerm: the port is a privileged one; kNoMem: no descriptors.
Result<std::vector<Fd>> listen_at(const std::vector<TcpAddress>& addresses);

// Whether an accept or a socket failed for want of descriptors or memory.
bool short_of_descriptors(int error);

}  // namespace cmi::rendezvous
