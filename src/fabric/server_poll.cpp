// What a Server's service thread does with its ports: looks at them, and learns whether it may
// sleep, and on what.
#include <algorithm>

#include "fabric/server.hpp"
#include "fabric/serving.hpp"

namespace cmi::fabric {

namespace {
constexpr size_t kInOneRound =
    8;  // ports, beyond which more than one other has its turn in a round
// Where each look at the one that is awaited finds something, the others have their turn once in so
// many rounds.
constexpr unsigned kBusyRounds = 8;
}  // namespace

// One at a time: a handler of this client may fence another, which waits for its pollers.
int Server::poll_one(size_t index) {
  std::shared_ptr<Serving> serving;
  Port* port = nullptr;
  if (index < doors_.size()) {
    port = doors_[index].get();
  } else {
    Guard g(mu_);
    if (index - doors_.size() >= servings_.size()) return 0;
    serving = servings_[index - doors_.size()];
    port = serving->port.get();
  }
  return port->pump() + (port->endpoint().shares_queue() ? 0 : port->endpoint().poll());
}

// Who is most likely to be heard of next is looked at in each round, the others in turn: who has
// just been answered asks again, and notifications are answered at the listeners. A look costs as
// much as the provider's system call: while all others had theirs in a row, the one that is awaited
// would wait for the last of them. Those that share a listener's queue need none of their own.
int Server::poll(bool all) {
  const Port* const awaited = awaited_.load(std::memory_order_relaxed);
  size_t ports, first = SIZE_MAX;
  for (size_t i = 0; i < doors_.size(); ++i) {
    if (doors_[i].get() == awaited) first = i;
  }
  {
    Guard g(mu_);
    ports = doors_.size() + servings_.size();
    for (size_t i = 0; first == SIZE_MAX && i < servings_.size(); ++i) {
      if (servings_[i]->port.get() == awaited) first = doors_.size() + i;
    }
  }
  int events = 0;
  if (all || first == SIZE_MAX) {
    for (size_t i = 0; i < ports; ++i) events += poll_one(i);
    return events;
  }
  events += poll_one(first);
  // What came here may be all that came: who has just been told or answered, and who may have to
  // wait for our processor, comes before another look.
  if (events > 0 && busy_rounds_.fetch_add(1, std::memory_order_relaxed) % kBusyRounds != 0) {
    return events;
  }
  for (size_t others = 1 + ports / kInOneRound; others > 0; --others) {
    events += poll_one(next_.fetch_add(1, std::memory_order_relaxed) % ports);
  }
  return events;
}

int Server::poll_listeners() {
  int events = 0;
  for (auto& listener : doors_) events += listener->endpoint().poll();
  return events > 0 ? events : poll();
}

void Server::descriptors(std::vector<int>* fds) {
  for (auto& listener : doors_) fds->push_back(listener->endpoint().wait_fd());
  Guard g(mu_);
  for (auto& s : servings_) {
    if (!s->port->endpoint().shares_queue()) fds->push_back(s->port->endpoint().wait_fd());
  }
}

bool Server::serves() {
  Guard g(mu_);
  return !servings_.empty();
}

bool Server::idle() {
  if (!std::all_of(doors_.begin(), doors_.end(), [](auto& d) { return d->idle(); })) return false;
  Guard g(mu_);
  return std::all_of(servings_.begin(), servings_.end(), [](auto& s) { return s->port->idle(); });
}

bool Server::may_sleep() {
  // One without a descriptor keeps nobody from sleeping for as long as it may be left alone.
  const auto may = [](Endpoint& ep) {
    return ep.wait_fd() < 0 || ep.shares_queue() || ep.may_sleep();
  };
  if (!std::all_of(doors_.begin(), doors_.end(), [&](auto& d) { return may(d->endpoint()); })) {
    return false;
  }
  Guard g(mu_);
  return std::all_of(servings_.begin(), servings_.end(),
                     [&](auto& s) { return may(s->port->endpoint()); });
}

}  // namespace cmi::fabric
