// One home and many importers, or one importer and many homes, on simulated nodes: what an action
// costs that concerns one of them, or all. Counted, so that it is the same in each run: messages
// and bytes of the fake network. The services of all nodes are one thread of the simulation, which
// looks at those that take part in an action far more often than at the others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "sim/nodes.hpp"

namespace cmi::test {

// What a net has carried for an action, and what this process computed for it.
struct Cost {
  uint64_t messages = 0, one_sided = 0, bytes = 0;
  int64_t cpu = 0;  // nanoseconds, of all nodes that took part
};

class Fleet {
 public:
  static constexpr size_t kPages = 1024;  // of each segment: two regions

  enum class Shape : uint8_t {
    kOneHome,    // node 0 is home of one segment that all others import
    kManyHomes,  // node 0 imports a segment of each of the others
  };
  Fleet(Shape shape, size_t others);
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // The next of the others comes, and imports, or is imported from.
  Cost join();
  // work(), as a thread of the node. Nodes 0 and `node` alone take part, or all.
  enum class Concerns : uint8_t { kTwo, kAll };
  Cost measure(size_t node, Concerns whom, const std::function<void(NodeCalls&)>& work);
  // All that may still be on its way arrives.
  void settle();

  Node& node(size_t n) { return *nodes_[n]; }
  size_t joined() const { return joined_; }
  // kOneHome: of node n, 0 for the home. kManyHomes: node 0's view of the segment of n.
  volatile uint64_t* view(size_t n) { return views_[n]; }
  volatile uint64_t* word(size_t n, size_t page) { return views_[n] + page * kPageSize / 8; }
  Simulation& simulation() { return simulation_; }

 private:
  static constexpr size_t kOthersEvery = 4096;  // rounds
  void serve(const bool& stop);
  Cost run(size_t node, Concerns whom, const std::function<void()>& work);

  const Shape shape_;
  const size_t others_;
  NodeFolder folder_;
  Simulation simulation_{1};
  std::shared_ptr<fabric::FakeNet> net_ = make_net();
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<uint64_t*> views_;
  Exported exported_;
  size_t joined_ = 0;
  size_t taking_part_ = 0;
  Concerns concerned_ = Concerns::kAll;
};

}  // namespace cmi::test
