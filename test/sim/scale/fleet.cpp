// Nodes that come one after the other, and what they cost.
#include "sim/scale/fleet.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

namespace cmi::test {

namespace {

constexpr Nanos kNap = 20 * kMicro;

int64_t cpu_time() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * kSecond + t.tv_nsec;
}

}  // namespace

Fleet::Fleet(Shape shape, size_t others) : shape_(shape), others_(others) {
  nodes_.reserve(others + 1);
  nodes_.push_back(std::make_unique<Node>(simulation_, *net_, folder_, 0, Node::Service::kNone));
  views_.push_back(nullptr);
  // Node 0 has a thread of its own, so that what it allocates can be told from the rest.
  simulation_.spawn_service(0, [this](const bool& stop) {
    while (!stop) nodes_[0]->serve_once() > 0 ? simulation_.pass("served") : simulation_.idle(kNap);
  });
  simulation_.spawn_service(1, [this](const bool& stop) { serve(stop); });
  if (shape == Shape::kManyHomes) return;
  (void)run(0, Concerns::kTwo, [this] {
    exported_ = nodes_[0]->export_segment(kPages * kPageSize);
    views_[0] = reinterpret_cast<uint64_t*>(exported_.at);
  });
}

Fleet::~Fleet() {
  if (simulation_.sound()) {
    simulation_.stop();
  } else {
    for (auto& node : nodes_) (void)node.release();
  }
}

void Fleet::serve(const bool& stop) {
  for (size_t round = 0; !stop; ++round) {
    int events = 0;
    const bool all = concerned_ == Concerns::kAll || round % kOthersEvery == 0;
    for (size_t n = 1; n < nodes_.size(); ++n) {
      if (all || n == taking_part_) events += nodes_[n]->serve_once();
    }
    events > 0 ? simulation_.pass("served") : simulation_.idle(kNap);
  }
}

Cost Fleet::run(size_t node, Concerns whom, const std::function<void()>& work) {
  taking_part_ = std::max<size_t>(node, 1);
  concerned_ = whom;
  const fabric::FakeTraffic before = net_->traffic();
  const int64_t begun = cpu_time();
  // Node 0's own calls are those of its application: a thread of another number.
  simulation_.spawn(static_cast<int>(node) + 2, work);
  simulation_.run();
  const int64_t cpu = cpu_time() - begun;
  const fabric::FakeTraffic after = net_->traffic();
  return {after.messages - before.messages, after.one_sided - before.one_sided,
          after.bytes - before.bytes, cpu};
}

Cost Fleet::measure(size_t node, Concerns whom, const std::function<void(NodeCalls&)>& work) {
  return run(node, whom, [&] {
    nodes_[node]->enable();
    NodeCalls calls(*nodes_[node]);
    work(calls);
    nodes_[node]->disable();
  });
}

Cost Fleet::join() {
  REQUIRE(joined_ < others_);
  const size_t n = ++joined_;
  nodes_.push_back(std::make_unique<Node>(simulation_, *net_, folder_, static_cast<int>(n),
                                          Node::Service::kNone));
  views_.push_back(nullptr);
  Exported exported = exported_;
  if (shape_ == Shape::kManyHomes) {
    (void)run(n, Concerns::kTwo, [&] { exported = nodes_[n]->export_segment(kPages * kPageSize); });
  }
  const size_t importer = shape_ == Shape::kOneHome ? n : 0;
  return run(n, Concerns::kTwo, [&] {
    views_[n] = reinterpret_cast<uint64_t*>(nodes_[importer]->import_segment(exported));
  });
}

void Fleet::settle() {
  (void)run(1, Concerns::kAll, [this] {
    for (const Nanos until = now() + 50 * kMilli; now() < until;) simulation_.idle(kNap);
  });
}

}  // namespace cmi::test
