// How a process of this machine, of whatever node, passes descriptors to a context and gets some
// back. It makes a pair of sockets, puts its message into one, and sends the other to the context's
// bus socket. Whoever may write to that socket is of the same user; the kernel says so once more
// (SO_PEERCRED). Both calls are without state; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/codec.hpp"
#include "core/base/fd.hpp"
#include "core/base/status.hpp"

namespace cmi::node {

// One end of a pair of sockets that keep messages apart.
class LocalChannel {
 public:
  static constexpr size_t kMaxMessage = 8192;
  static constexpr size_t kMaxFds = 4;
  struct Message {
    std::vector<std::byte> bytes;
    std::vector<Fd> fds;
  };

  explicit LocalChannel(Fd socket) : socket_(std::move(socket)) {}
  // Sends the message to the context in that slot of the node's folder. kReconfig: its queue is
  // full; kNoMem: there are no descriptors; kInval: the folder or the context is not there, or it
  // is not this user's.
  static Result<LocalChannel> ask(const std::string& path, uint32_t slot, Bytes message,
                                  std::span<const int> fds);

  // Whether the process at the other end is of this process's effective user.
  bool of_this_user() const;
  // kReconfig: nothing has come in time. kInval: the other end has closed it, or sent what is no
  // message. The service thread does not wait: Deadline{0}.
  Result<Message> receive(Deadline deadline);
  // Does not wait. False: the other end is gone.
  bool send(Bytes message, std::span<const int> fds);

 private:
  Fd socket_;
};

}  // namespace cmi::node
