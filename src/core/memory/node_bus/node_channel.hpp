// How a process asks the other processes of its node, and answers them, over the node's bus. What
// they ask for is up to the handlers (home/bus_handlers.cpp).
// Threads: any; ask() waits, so the service thread never calls it.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/clock.hpp"
#include "core/memory/node_bus/questions.hpp"
#include "core/memory/vm/store_log.hpp"
#include "core/memory/wire/bus_messages.hpp"
#include "core/node/node.hpp"
#include "fabric/server.hpp"

namespace cmi::memory {

class NodeChannel {
 public:
  // A thread that waits polls the server.
  NodeChannel(node::Node& node, fabric::Server& server) : node_(node), server_(server) {}

  // Asks another process of the node, mostly a segment's owner, and waits for the answer. The
  // number of the question is chosen here. True: it has answered, or has ended. `pass_fd`: a
  // descriptor that goes along, -1 for none. `file`: receives the descriptor that came back.
  // `status`: receives what the answer says; nothing where the other process has ended.
  template <class Message>
  bool ask(node::ContextSlot to, Message m, int pass_fd, Deadline deadline, Fd* file = nullptr,
           std::optional<uint64_t>* status = nullptr) {
    m.question = questions_.new_number();
    const auto question = questions_.add(m.question);
    const bool answered = send_and_await(to, m.segment, *question, Encoded(m), pass_fd, deadline);
    Fd came = questions_.close(m.question, *question);
    if (file != nullptr) *file = std::move(came);
    if (status != nullptr) *status = question->status;
    return answered;
  }
  // Answers a question; it is lost where the receiver's queue is full, and asked again then.
  void answer(node::ContextSlot to, int32_t segment, uint64_t question, Status status = Status::kOk,
              int file = -1);
  // One datagram. kReconfig: the receiver's queue is full. kInval: the receiver has ended.
  Status send(node::ContextSlot to, Bytes datagram, int pass_fd = -1) {
    return node_.bus().send(to, datagram, pass_fd);
  }
  // Sends the owner of a segment the pages that were stored to, without waiting: the owner takes
  // them in before whatever is sent next. False: not all fitted into its queue; the rest stays.
  bool send_stored(node::ContextSlot owner, int32_t id, StoreLog& stores);

  BusQuestions& questions() { return questions_; }

 private:
  bool send_and_await(node::ContextSlot to, int32_t segment, BusQuestion& question, Bytes datagram,
                      int pass_fd, Deadline deadline);
  bool await_in_slices(node::ContextSlot to, int32_t segment, BusQuestion& question, Bytes datagram,
                       int pass_fd, Deadline deadline);

  node::Node& node_;
  fabric::Server& server_;
  BusQuestions questions_;
};

}  // namespace cmi::memory
