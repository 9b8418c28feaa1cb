// A Server's listeners as its tables see them: address books and a way to send. The tables are
// tested over listeners that only write down what they are given.
// Threads: any. No call waits or calls back, so a table may hold its lock over it.
#pragma once

#include <cstddef>

#include "fabric/fabric.hpp"
#include "fabric/frame.hpp"

namespace cmi::fabric {

class ListenerPorts {
 public:
  virtual ~ListenerPorts() = default;
  // Each add_peer() needs its remove_peer(): Port::add.
  virtual Result<Peer> add_peer(size_t index, Bytes address) = 0;
  virtual void remove_peer(size_t index, Peer peer) = 0;
  // As Port::send.
  virtual bool send(size_t index, Peer peer, const Frame& frame, bool last = false) = 0;
};

}  // namespace cmi::fabric
