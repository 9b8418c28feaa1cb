// Listeners that write down what they are given: the tables of a Server without a network.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "fabric/listener_ports.hpp"

namespace cmi::fabric {

struct ListenerRecord : ListenerPorts {
  struct Sent {
    size_t index;
    Peer peer;
    FrameKind kind;
    uint64_t secret, number;
    bool last;
  };
  Result<Peer> add_peer(size_t index, Bytes address) override {
    if (address.empty()) return Status::kInval;
    const auto peer = static_cast<Peer>(++next);
    peers.insert({index, peer});
    return peer;
  }
  void remove_peer(size_t index, Peer peer) override {
    wrong_removals += peers.erase({index, peer}) == 1 ? 0 : 1;
  }
  bool send(size_t index, Peer peer, const Frame& f, bool last) override {
    sent.push_back({index, peer, f.kind, f.secret, f.number, last});
    return peers.contains({index, peer});
  }

  uint64_t next = 0;
  std::set<std::pair<size_t, Peer>> peers;  // added and not removed
  std::vector<Sent> sent;
  int wrong_removals = 0;
};

inline std::vector<std::byte> address(uint8_t n) { return {std::byte{n}, std::byte{1}}; }

}  // namespace cmi::fabric
