// What a Server's service thread does with its ports: looks at them, and learns whether it may
// sleep, and on what.
#include <algorithm>

#include "fabric/server.hpp"

namespace cmi::fabric {

// One at a time: a handler of this client may fence another, which waits for its pollers.
int Server::poll_one(size_t i) {
  std::shared_ptr<Serving> serving;
  Port* port = nullptr;
  if (i < ports_.size()) {
    port = ports_[i].get();
  } else if (const size_t servings = clients_.serving_count(); i < ports_.size() + servings) {
    serving = clients_.serving_at(i - ports_.size());
    if (serving == nullptr) return 0;
    // What comes by its endpoint besides has time until its rings are empty.
    if (const int events = serving->poll_rings(); events > 0) return events;
    port = serving->port();
  } else {
    const auto ring = homes_.ring_at(i - ports_.size() - servings);
    return ring == nullptr ? 0 : ring->poll();
  }
  return port->pump() + (port->endpoint().shares_queue() ? 0 : port->endpoint().poll());
}

// Endpoints that share a listener's queue need no look of their own: the hot port is the listener's
// then. SIZE_MAX: none is hot, or it is gone.
size_t Server::hot_port(size_t ports) {
  const void* const hot = order_.hot();
  size_t i = 0;
  for (auto& p : ports_) {
    if (p.get() == hot) return i;
    ++i;
  }
  size_t found = SIZE_MAX;
  if (hot == nullptr || i == ports) return found;
  clients_.each_serving([&](Serving& s) {
    if (s.port() == hot) found = i;
    ++i;
  });
  return found;
}

int Server::poll(bool all) {
  const int events = poll_some(all);
  if (events == 0) clients_.found_nothing();
  return events;
}

int Server::poll_some(bool all) {
  const size_t ports = ports_.size() + clients_.serving_count() + homes_.ring_count();
  const size_t hot = all ? SIZE_MAX : hot_port(ports);
  int events = 0;
  if (hot == SIZE_MAX) {
    for (size_t i = 0; i < ports; ++i) events += poll_one(i);
    return events;
  }
  events += poll_one(hot);
  for (size_t others = order_.others(events, ports); others > 0; --others) {
    events += poll_one(order_.next(ports));
  }
  return events;
}

int Server::poll_rings() {
  int events = 0;
  for (size_t i = 0; const auto serving = clients_.serving_at(i); ++i) {
    events += serving->poll_rings();
  }
  for (size_t i = 0; i < homes_.ring_count(); ++i) {
    if (const auto ring = homes_.ring_at(i); ring != nullptr) events += ring->poll();
  }
  return events;
}

int Server::poll_listeners() {
  if (const int by_rings = poll_rings(); by_rings > 0) return by_rings;
  int events = 0;
  for (auto& port : ports_) events += port->endpoint().poll();
  return events > 0 ? events : poll();
}

void Server::descriptors(std::vector<int>* fds) {
  for (auto& port : ports_) fds->push_back(port->endpoint().wait_fd());
  clients_.each_serving([&](Serving& s) {
    if (!s.endpoint().shares_queue()) fds->push_back(s.endpoint().wait_fd());
  });
  const auto add = [&](const ring::Channel& ring) { fds->push_back(ring.wait_fd()); };
  clients_.each_serving([&](Serving& s) { s.each_ring(add); });
  homes_.each_ring(add);
}

bool Server::idle() {
  bool idle = std::all_of(ports_.begin(), ports_.end(), [](auto& p) { return p->idle(); });
  if (idle) clients_.each_serving([&](Serving& s) { idle = idle && s.port()->idle(); });
  const auto look = [&](const ring::Channel& ring) { idle = idle && ring.idle(); };
  if (idle) clients_.each_serving([&](Serving& s) { s.each_ring(look); });
  if (idle) homes_.each_ring(look);
  return idle;
}

bool Server::may_sleep() {
  // An endpoint without a descriptor keeps nobody from sleeping for as long as it may be left
  // alone.
  const auto may_ep = [](Endpoint& ep) {
    return ep.wait_fd() < 0 || ep.shares_queue() || ep.may_sleep();
  };
  bool may =
      std::all_of(ports_.begin(), ports_.end(), [&](auto& p) { return may_ep(p->endpoint()); });
  if (may) clients_.each_serving([&](Serving& s) { may = may && may_ep(s.endpoint()); });
  const auto may_ring = [&](ring::Channel& ring) { may = may && ring.may_sleep(); };
  if (may) clients_.each_serving([&](Serving& s) { s.each_ring(may_ring); });
  if (may) homes_.each_ring(may_ring);
  return may;
}

}  // namespace cmi::fabric
