// Answers CMI_CTL_NODE_CMAP_GET: a thread of its own asks all peers and waits for their answers, so
// that neither the client nor the service thread does. It lives while there are requests.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "core/base/lock.hpp"
#include "core/memory/engine/engine.hpp"
#include "events/events.hpp"

namespace cmi::events {

class MapMaker {
 public:
  MapMaker(memory::Engine& engine, Events& events) : engine_(engine), events_(events) {}
  ~MapMaker() { stop(); }

  // One map comes for each. kNoMem: too many wait, or no thread can be had.
  Status request(uint64_t id);
  // No map is made any more. Before the engine ends.
  void stop();

 private:
  static constexpr size_t kMaxRequests = 1024;
  void run();

  memory::Engine& engine_;
  Events& events_;
  std::atomic<bool> stop_{false};
  Mutex mu_;
  std::vector<uint64_t> asked_ CMI_GUARDED_BY(mu_);
  bool running_ CMI_GUARDED_BY(mu_) = false;
  std::thread thread_ CMI_GUARDED_BY(mu_);  // joinable also when it has run out of requests
};

}  // namespace cmi::events
