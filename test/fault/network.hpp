// A network for the nodes of a test: each node has a network namespace of its own, joined by a veth
// pair to a switch (a bridge) in the namespace of the test's process. Cables can be pulled, and
// packets dropped between any two nodes, in one direction or both.
//
//   Network net(cluster);
//   if (!net.here()) return skip(net.reason());
//   net.join("home");                       // before its first process is spawned
//   net.pull("home"); ... net.plug("home");
//   net.drop("peer", "home"); ... net.heal();
//
// Needs ip and nft, and either root or the right to make a user namespace, which the test's process
// then takes for itself; it stays in the namespaces that it made. They go with their last process,
// and with them all that is in them. Only for a process with one thread.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/fd.hpp"
#include "system/nodes.hpp"

namespace cmi::test {

class Network {
 public:
  explicit Network(Cluster& cluster);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  bool here() const { return reason_.empty(); }
  const char* reason() const { return reason_.c_str(); }

  // Processes of the node that are spawned from now on live in its namespace, under its address.
  void join(const std::string& node);
  // Another node on the same machine, in the same namespace.
  void join_beside(const std::string& node, const std::string& other);
  // A second cable, to an interface eth1 with an address of another subnet, which is never pulled.
  // It goes to a second switch: a node answers for all of its addresses at each of its cables, and
  // by one switch the address of a cable that is pulled could be reached by the other one.
  void add_cable(const std::string& node);

  // The node's cable: neither side has a carrier while it is pulled.
  void pull(const std::string& node);
  void plug(const std::string& node);

  // Packets from one to the other are lost, without a word to either.
  void drop(const std::string& from, const std::string& to);
  // In both directions, between all nodes of one side and all of the other.
  void part(const std::vector<std::string>& side, const std::vector<std::string>& other);
  void heal();

 private:
  struct Place {
    std::string number;  // of its addresses
    Fd network;
  };
  void connect(const Place& place, const std::string& to, const std::string& port,
               const std::string& device, const std::string& address);
  bool run(const std::vector<std::string>& command, const std::string& input, int network = -1);
  void must(bool done, const std::string& what);
  void write_rules();
  const std::string& port(const std::string& node) const { return ports_.at(node); }

  Cluster& cluster_;
  std::string reason_;  // empty: it is here
  std::string said_;    // what the last command printed
  std::map<std::string, std::string> ports_;
  std::map<std::string, Place> places_;
  std::vector<std::pair<std::string, std::string>> dropped_;  // from, to
};

}  // namespace cmi::test
