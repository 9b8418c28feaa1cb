// Nodes of a simulation: home and importer of a context each, over the fake network, without
// threads or processes of their own. Their service threads and those of the client are the
// simulation's. Memory is real: loads and stores go through views, and their faults are served in
// the signal's handler, as they are in a program.
#pragma once

#include <cstdint>
#include <memory>

#include "fuzz/contexts.hpp"
#include "litmus/play.hpp"
#include "node/node_support.hpp"
#include "sim/simulation.hpp"

namespace cmi::test {

// A segment of a node, and what another one needs to import it.
struct Exported {
  int32_t id = 0;
  std::byte* at = nullptr;
  access::RsegInfo handle{};
  access::TokenInfo token{};
};

// The network of the nodes, on whose descriptors nobody sleeps.
std::shared_ptr<fabric::FakeNet> make_net();

class Node {
 public:
  // Its service thread begins with the simulation; kNone: somebody calls serve_once() instead.
  enum class Service : uint8_t { kOwn, kNone };
  // By whom its swaps on imports are made: by the home, or by the network, as devices do.
  enum class Swaps : uint8_t { kByHome, kByNetwork };
  Node(Simulation& simulation, fabric::FakeNet& net, const NodeFolder& folder, int number,
       Service service = Service::kOwn, Swaps swaps = Swaps::kByHome);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // In threads of the simulation. Both throw std::runtime_error.
  Exported export_segment(size_t bytes, int32_t flags = 0);
  // Where its view lies.
  std::byte* import_segment(const Exported& exported);
  // In a thread that is going to use imports, and when it has done so.
  void enable();
  void disable();

  // One round of the service thread. How much there was to do.
  int serve_once();
  // Its service thread does nothing meanwhile, as if it had no processor.
  void hold(bool held) { held_ = held; }

  memory::Home& home() { return *context_.home; }
  memory::Importer& importer() { return *context_.importer; }
  const ContextId& id() const { return context_.id; }
  const memory::Stats& stats() const { return context_.stats(); }
  // The id and offset of an address at home; 0: it is in no segment of this node.
  int32_t segment_at(const volatile void* address, size_t* offset);
  std::shared_ptr<const memory::View> view_at(const volatile void* address);

 private:
  void serve(const bool& stop);

  Simulation& simulation_;
  Context context_;
  int32_t imports_ = 0;
  Nanos ticked_ = 0;
  bool held_ = false;
};

// The calls of one thread on a node.
class NodeCalls final : public Calls {
 public:
  explicit NodeCalls(Node& node) : node_(node) {}
  uint64_t open() override;
  uint64_t close() override { return flush(); }
  uint64_t flush() override { return barrier(epoch_); }
  uint64_t wmb() override { return barrier(mark_); }
  uint64_t mb() override;
  uint64_t rmb() override;
  uint64_t cflush(volatile uint64_t* line) override;
  uint64_t cas(volatile uint64_t* word, uint64_t expected, uint64_t desired,
               uint64_t* old) override;

 private:
  uint64_t barrier(memory::LossMark& mark);
  uint64_t swap_imported(const memory::View& view, volatile uint64_t* word, uint64_t expected,
                         uint64_t desired, uint64_t* old);

  Node& node_;
  memory::LossMark mark_ = node_.importer().publishing().losses(), epoch_ = mark_;
};

}  // namespace cmi::test
