// The routes by which a Link may reach its home, and which of them it goes, or tries, now. A route
// on which a session cannot begin gives way to the next, and the last to the first: to the home
// another route is a new generation like any other.
//
// Pure but for the callback. Link::mu_ guards all of it but what says otherwise: a route changes
// only while there is no session.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "core/base/clock.hpp"
#include "fabric/fabric.hpp"

namespace cmi::fabric {

// From one of our listeners to one of the home's, of the same provider.
struct Route {
  Fabric* fabric = nullptr;   // operations that we start go by it
  size_t listener_index = 0;  // index of our listener, as Server counts them
  bool cas = false;           // its swaps are coherent with the CPU's
  std::vector<std::byte> own_listener, home_listener;
};

class RoutePicker {
 public:
  // Called before a route is taken for the first time, or instead of another: notifications of the
  // home that come to our listener must be understood from then on. False: this route is no use.
  using Taking = std::function<bool(const Route&)>;

  // The best route first; at least one. `dead_after`: when a home that cannot be reached counts as
  // dead.
  RoutePicker(std::vector<Route> routes, Nanos dead_after, Taking taking);

  // Any thread, no lock: constant, or an atomic index.
  size_t count() const { return routes_.size(); }
  bool cas() const { return cas_; }  // swaps may go by the provider, whichever route is taken
  const Route& current(size_t further_on = 0) const {
    return routes_[(index_.load(std::memory_order_relaxed) + further_on) % routes_.size()];
  }
  const std::vector<Route>& all() const { return routes_; }
  // The provider took none of the home's listeners for an address: nothing will ever answer.
  bool without_listener() const { return without_listener_.load(std::memory_order_relaxed); }

  // Whether the current route is taken.
  bool take();
  // What came of the try on the current route. True: another one is tried next.
  bool no_listener();  // the home's listener is no address, or the route was not taken
  // We got no endpoint. That says nothing of the home.
  bool no_endpoint();
  bool all_without_endpoint() const { return without_endpoint_in_a_row_ >= routes_.size(); }
  void opened() { without_endpoint_in_a_row_ = 0; }
  void found_listener();
  bool not_welcomed();
  void welcomed() { in_vain_ = 0; }

  // How long a hello may go unanswered, if there has been no session for the span `tried`.
  Nanos patience(Nanos tried) const;
  // So that a home is tried several times before it counts as dead.
  Nanos longest_wait() const { return longest_wait_; }

 private:
  bool try_next();

  const std::vector<Route> routes_;
  const bool cas_;
  const Nanos longest_wait_;  // for the answer to one hello
  const Taking taking_;
  std::atomic<size_t> index_{0};
  bool taken_ = false;                    // taking_ was called for the current route
  size_t in_vain_ = 0;                    // tries since there was a session
  size_t without_endpoint_in_a_row_ = 0;  // routes on which we got none
  size_t without_listener_in_a_row_ = 0;  // routes whose listener is no address
  std::atomic<bool> without_listener_{false};
};

}  // namespace cmi::fabric
