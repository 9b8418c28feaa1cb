// The bus: one datagram socket per context in the node's folder. A datagram has at most
// kMaxDatagram bytes and passes at most one descriptor along.
// Owns the socket of this context. Invariant: what receive() returns came from a process of this
// user, and from a member of the node unless it says otherwise.
// Threads: any; no call takes the registry's lock.
#pragma once

#include <string>
#include <vector>

#include "core/base/codec.hpp"
#include "core/base/fd.hpp"
#include "core/base/status.hpp"
#include "core/node/seat.hpp"

namespace cmi::node {

class Bus {
 public:
  static constexpr size_t kMaxDatagram = 8192;

  struct Datagram {
    ContextSlot from{};
    ContextId sender;  // of no question and no channel
    std::vector<std::byte> bytes;
    Fd fd;
    bool question = false;  // by a process that is no member; see inquiry.hpp
    bool channel = false;   // the same; see local_channel.hpp
  };
  // Where processes of other nodes of the machine find this context: for LocalChannel::ask().
  struct Address {
    std::string folder;  // path
    uint32_t slot = 0;
  };

  explicit Bus(const Seat& seat) : seat_(seat) {}

  // Binds the socket of the seat's slot; unlinks what an earlier owner left.
  Status open();
  void forget_in_child() { socket_.reset(); }

  Address address() const;
  int fd() const { return socket_.get(); }  // readable when something arrived; non-blocking
  // kReconfig: the receiver's queue is full, try again; kInval: no such member any more.
  Status send(ContextSlot to, Bytes message, int pass_fd = -1);
  // Next datagram of a member, or a question; kReconfig when none waits. Those of other users, of
  // contexts that have left and of nobody are dropped.
  Result<Datagram> receive();

 private:
  const Seat& seat_;
  Fd socket_;
};

// From a process that is no member, to the context in the slot. kReconfig: its queue is full;
// kInval: nobody sits there.
Status send_question(const Folder& folder, uint32_t slot, int pass_fd);
// The same, with an end of a LocalChannel.
Status send_channel(const Folder& folder, uint32_t slot, int pass_fd);

}  // namespace cmi::node
