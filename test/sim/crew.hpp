// A home and some importers of one segment of it, on simulated nodes, and what they cost each
// other.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/memory/page/stats.hpp"
#include "sim/nodes.hpp"

namespace cmi::test {

struct CrewCounts {
  uint64_t misses = 0, requests = 0, publications = 0, notifications = 0, useless = 0;
  uint64_t held_back = 0, pages_written_back = 0;
  uint64_t brought = 0;  // pages that a swap's answer brought
  CrewCounts operator-(const CrewCounts& o) const {
    return {misses - o.misses,
            requests - o.requests,
            publications - o.publications,
            notifications - o.notifications,
            useless - o.useless,
            held_back - o.held_back,
            pages_written_back - o.pages_written_back,
            brought - o.brought};
  }
  uint64_t messages() const { return requests + notifications; }
};

// A home, and so many importers of a segment of its own.
class Crew {
 public:
  static constexpr size_t kNobody = SIZE_MAX;

  // `deaf`: a member that takes in no notification but in its serve_once().
  Crew(uint32_t seed, size_t members, size_t pages, const std::string& faults = "",
       size_t deaf = kNobody, Node::Swaps swaps = Node::Swaps::kByHome)
      : simulation_(seed) {
    ::setenv("CMI_FAULT_POINT", faults.c_str(), 1);
    simulation_.arm_faults(-1);
    for (size_t n = 0; n <= members; ++n) {
      nodes_.push_back(std::make_unique<Node>(
          simulation_, *net_, folder_, static_cast<int>(n),
          deaf != kNobody && n == deaf + 1 ? Node::Service::kNone : Node::Service::kOwn, swaps));
    }
    simulation_.spawn(-1, [this, pages] {
      const Exported exported = nodes_[0]->export_segment(pages * kPageSize);
      home_ = reinterpret_cast<uint64_t*>(exported.at);
      for (size_t n = 1; n < nodes_.size(); ++n) {
        views_.push_back(reinterpret_cast<uint64_t*>(nodes_[n]->import_segment(exported)));
      }
    });
    simulation_.run();
  }
  ~Crew() {
    if (simulation_.sound()) {
      simulation_.stop();
    } else {
      for (auto& node : nodes_) (void)node.release();
    }
    ::unsetenv("CMI_FAULT_POINT");
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  // work(member, its view, its calls), on all members at once.
  template <class Work>
  void all(Work work) {
    for (size_t m = 0; m < views_.size(); ++m) spawn(m, work);
    simulation_.run();
  }
  // On one of them.
  template <class Work>
  void one(size_t member, Work work) {
    spawn(member, work);
    simulation_.run();
  }
  // Runs with the next all() or one().
  template <class Work>
  void spawn(size_t m, Work work) {
    simulation_.spawn(static_cast<int>(m) + 1, [this, m, work] {
      Node& node = *nodes_[m + 1];
      node.enable();
      NodeCalls calls(node);
      work(m, views_[m], calls);
      node.disable();
    });
  }
  CrewCounts counts() const {
    CrewCounts sum;
    for (size_t n = 1; n < nodes_.size(); ++n) {
      const memory::Stats& s = nodes_[n]->stats();
      const uint64_t misses = s.load_misses + s.store_misses;
      sum.misses += misses;
      sum.requests += misses + s.intents_asked + s.publications;
      sum.publications += s.publications;
      sum.held_back += s.requests_held_back;
      sum.pages_written_back += s.pages_written_back;
      sum.notifications += s.invalidations_received;
      sum.useless += s.invalidations_useless;
      sum.brought += s.swaps_with_page;
    }
    return sum;
  }
  // Pages, by member 0.
  uint64_t fetched() const { return nodes_[1]->stats().pages_fetched; }
  void prefetch(size_t member, memory::PageRange pages) {
    Node& its = node(member);
    const SignalsBlocked quiet;
    its.importer().views().prefetch(*its.view_at(views_[member]), pages, Deadline::in(kSecond));
  }
  Node& node(size_t member) { return *nodes_[member + 1]; }
  Node& home_node() { return *nodes_[0]; }
  fabric::FakeNet& net() { return *net_; }
  Simulation& simulation() { return simulation_; }
  const uint64_t* home() const { return home_; }
  size_t members() const { return views_.size(); }
  // The way of a member to the home.
  std::shared_ptr<fabric::Link> link_of(size_t member) {
    return nodes_[member + 1]->importer().homes().link_with(nodes_[0]->id());
  }

 private:
  NodeFolder folder_;
  Simulation simulation_;
  std::shared_ptr<fabric::FakeNet> net_ = make_net();
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<uint64_t*> views_;
  uint64_t* home_ = nullptr;
};

}  // namespace cmi::test
