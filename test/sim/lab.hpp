// The laboratory of litmus/lab.hpp on simulated nodes: a node is a context of this process, a seed
// chooses the interleaving, and every run is the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "litmus/play.hpp"
#include "sim/nodes.hpp"

namespace cmi::test {

class Lab {
 public:
  // faults: CMI_FAULT_POINT at node `at`, or at all of them. No two processes of a node.
  explicit Lab(const Placement& where, const std::string& faults = "", int at = -1);
  ~Lab();
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  // Runs the program so often, or until an outcome matches `enough`.
  Histogram run(const Program& program, uint32_t rounds, const Predicate& enough = nullptr);

 private:
  void share(const Placement& where);

  NodeFolder folder_;
  Simulation simulation_;
  std::shared_ptr<fabric::FakeNet> net_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Bases> bases_;
  std::unique_ptr<Control> control_ = std::make_unique<Control>();
  uint32_t next_round_ = 0;
};

}  // namespace cmi::test
