// How a Link comes to a session, and how it ends one.
#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/usdt.hpp"
#include "fabric/link.hpp"
#include "fabric/reach.hpp"

namespace cmi::fabric {

void Link::trace_next_route_locked(const Route& before) {
  trace(kFacMem, kWarn, "link: home {:016x} does not answer at {} over {}: {} over {} is tried",
        home_.hi, listener_text(before.home_listener), before.fabric->traits().provider,
        listener_text(routes_.current().home_listener),
        routes_.current().fabric->traits().provider);
}

void Link::connect_locked() {
  const Route& route = routes_.current();
  connecting_since_ = now();
  if (!routes_.take()) {
    if (routes_.no_listener()) trace_next_route_locked(route);
    return;
  }
  std::shared_ptr<Session> s(new Session(*this, route, ++generation_));
  auto port = fault_point_fails("link_no_endpoint") ? Status::kHw : Port::open(*route.fabric, *s);
  if (!port) return no_endpoint_locked(port.status());
  routes_.opened();
  health_.connecting_at(connecting_since_);
  s->port_ = port.take();
  auto peer = s->port_->add(route.home_listener);
  if (!peer) {
    if (routes_.no_listener()) trace_next_route_locked(route);
    return;
  }
  routes_.found_listener();
  s->listener_ = *peer;
  say_hello_locked(s);
}

// The home was asked nothing: what this side lacks is not held against it.
void Link::no_endpoint_locked(Status why) {
  trace(kFacMem, kWarn, "link: no endpoint: {}", status_name(why));
  const Route& before = routes_.current();
  const bool another = routes_.no_endpoint();
  if (routes_.all_without_endpoint()) {
    health_.not_held_against_home();
    health_.this_side_failed();
  }
  if (another) trace_next_route_locked(before);
}

void Link::say_hello_locked(const std::shared_ptr<Session>& s) {
  std::byte hello[256];
  Writer out(hello);
  out.put(self_.id.hi);
  out.put(self_.id.lo);
  out.put(self_.node.hi);
  out.put(self_.node.lo);
  out.put(home_.hi);
  out.put(home_.lo);
  out.put(self_.notification_secret);
  out.put(s->generation_);
  out.put(s->nonce_);
  out.blob(s->endpoint().address());
  out.blob(s->route_.own_listener);
  const Frame f{FrameKind::kHello, 0, 0, 0, 0, out.done()};
  if (!out.ok()) return;
  current_ = s;
  s->port_->send(s->listener_, f);
}

void Link::welcomed(Session& s, const Frame& f) {
  Reader in(f.payload);
  const auto generation = in.get<uint32_t>();
  const auto nonce = in.get<uint64_t>();
  Bytes serving = in.blob();
  if (!in.done() || generation != s.generation_ || nonce != s.nonce_) return;
  Guard g(mu_);
  if (current_.get() != &s || s.up_.load(std::memory_order_relaxed)) return;
  auto home = s.port_->add(serving);
  if (!home) return;
  s.home_ = *home;
  s.secret_ = f.secret;
  const Nanos t = now();
  s.heard_.store(t, std::memory_order_relaxed);
  health_.welcomed_at(t);
  connecting_since_ = t;
  routes_.welcomed();
  s.up_.store(true, std::memory_order_release);
  CMI_PROBE2(link_up, home_.hi, s.generation_);
  trace(kFacMem, kInfo, "link: home {:016x} is reached over {} at {}", home_.hi,
        s.route_.fabric->traits().provider, listener_text(s.route_.home_listener));
  window_.restart();
  // The endpoint that direct acknowledgements would come to has gone, and some with it. The home
  // asks the receivers of the notifications itself.
  window_.each([](Request& r) { r.tokens_.expect_none(); });
  direct_acks_.restart();
  send_more_locked(s, t);
  dial_locked(s);
}

void Link::go_by_rings(std::unique_ptr<ring::Dialer> dialer) {
  Guard g(mu_);
  if (dialer_ != nullptr) return;
  dialer_ = std::move(dialer);
  if (up_locked()) dial_locked(*current_);
}

// Without a session there is nothing to try: the next one begins with it.
void Link::dial_again() {
  Guard g(mu_);
  dial_due_.store(0, std::memory_order_relaxed);
  if (up_locked()) dial_locked(*current_);
}

// The other side of the channels is passed to the home, which says by the first of them that it has
// them.
void Link::dial_locked(Session& s) {
  if (dialer_ == nullptr || ring_refused_ || s.ring_ != nullptr) return;
  auto requests = ring::Channel::make(dialer_->sockets());
  auto notifications = ring::Channel::make(dialer_->sockets());
  if (!requests || !notifications ||
      !dialer_->dial({self_.id, s.secret_}, std::move(requests->passed), notifications.take())) {
    dial_due_.store(now() + dial_pause_, std::memory_order_relaxed);
    dial_pause_ = std::min(2 * dial_pause_, kLongestDialPause);
    return trace(kFacMem, kInfo, "link: no ring to home {:016x}", home_.hi);
  }
  dial_due_.store(0, std::memory_order_relaxed);
  dial_pause_ = kShortestDialPause;
  s.open_ring(std::move(requests->channel));
}

// What has no answer yet is sent by the ring once more, before what is sent for the first time: so
// the home finds all requests in their order, and executes each as it comes first.
void Link::has_ring(Session& s) {
  Guard g(mu_);
  if (current_.get() != &s || s.by_ring()) return;
  s.by_ring_.store(true, std::memory_order_release);
  trace(kFacMem, kInfo, "link: home {:016x} is reached by a ring", home_.hi);
  window_.send_again();
  send_more_locked(s, now());
}

// The session goes on waiting as if nothing had come: the next hello comes no sooner than that.
void Link::refused(const Session& s, const Frame& f) {
  Reader in(f.payload);
  const auto generation = in.get<uint32_t>();
  const auto nonce = in.get<uint64_t>();
  if (!in.done() || generation != s.generation_ || nonce != s.nonce_) return;
  Guard g(mu_);
  if (current_.get() != &s || s.up_.load(std::memory_order_relaxed)) return;
  health_.refused();
  trace(kFacMem, kWarn, "link: home {:016x} has no descriptors left for us", home_.hi);
}

std::shared_ptr<Session> Link::current() {
  Guard g(mu_);
  return up_locked() ? current_ : nullptr;
}

[[gnu::hot]] std::shared_ptr<Session> Link::session(Deadline deadline) {
  Backoff backoff;
  WaitSlices slices(deadline, 2 * kMilli);
  for (;;) {
    std::shared_ptr<Session> s;
    bool can_sleep = false;
    {
      Guard g(mu_);
      if (condemned()) return nullptr;
      s = current_;
      if (s != nullptr && s->up_.load(std::memory_order_acquire)) {
        if (!s->broken() && !s->endpoint().broken()) return s;
      } else if (s != nullptr) {
        can_sleep = true;
      }
    }
    if (deadline.passed()) return nullptr;
    if (advance() > 0) continue;
    if (can_sleep) {
      Op never;  // waits for the welcome: polls and sleeps on the endpoint's descriptor
      never.begin();
      s->endpoint().wait(never, slices.next());
    } else {
      backoff.pause();
    }
  }
}

void Link::retire(const std::shared_ptr<Session>& session) {
  if (session == nullptr) return;
  session->broken_.store(true, std::memory_order_release);
  const bool faulty = session->endpoint().faulty();
  if (faulty) health_.this_side_failed();
  std::shared_ptr<Session> last;  // closed without the lock
  Guard g(mu_);
  if (session->was_lied_to()) ring_refused_ = true;
  if (current_ != session) return;
  last.swap(current_);
  if (faulty) health_.not_held_against_home();
  CMI_PROBE2(link_down, home_.hi, session->generation_);
  trace(kFacMem, kInfo, "link: session {} retired", session->generation_);
  if (session->up_.load(std::memory_order_relaxed)) return;
  const Route& before = routes_.current();
  if (routes_.not_welcomed()) trace_next_route_locked(before);
}

// A session that is still being connected ends here too: its welcome must find nobody.
bool Link::condemn() {
  std::shared_ptr<Session> last;  // closed without the lock
  Guard g(mu_);
  const bool first = !condemned_.exchange(true, std::memory_order_acq_rel);
  if (current_ != nullptr) current_->broken_.store(true, std::memory_order_release);
  last.swap(current_);
  return first;
}

bool Link::left_to_waiters() {
  Guard g(mu_);
  return up_locked() && current_->endpoint().awaited() && !current_->broken() &&
         !current_->endpoint().broken() && current_->idle() &&
         current_->detached_count_.load(std::memory_order_relaxed) == 0;
}

// Whether the session is of no use, or the home owes an answer on it and is silent. Asks again for
// what it owes.
bool Link::stalled_locked() {
  Session& s = *current_;
  const bool broken = s.endpoint().broken();
  if (!up_locked()) {
    const Nanos tried = connecting_since_ - health_.unreachable_since();
    return broken || now() - connecting_since_ > routes_.patience(tried);
  }
  if (broken || s.broken()) return true;
  const bool requests = !window_.empty();
  if (!requests && s.detached_count_.load() == 0) return false;
  const Nanos since = std::max(
      connecting_since_, requests ? window_.unacknowledged_since() : s.detached_since_.load());
  // A home that is behind answers late and no sooner on another session. A request that is repeated
  // brings a sign of life, too. But what a new session shows, such as a fault of this side, is to
  // be seen before the home counts as dead.
  const bool swaps = s.swaps_.load(std::memory_order_relaxed) > 0;
  const Nanos late = requests ? std::min(2 * window_.answer_wait(), routes_.longest_wait()) : 0;
  const Nanos patience = swaps ? kSwapStall : std::max(kStall, late);
  const bool stall = now() - std::max(s.heard_.load(std::memory_order_relaxed), since) > patience;
  // A reply may have been lost, or the home takes its time. It answers a repeated request that it
  // still works on with a sign of life.
  const Nanos t = now();
  for (Request* r : window_.to_ask_again(since, t)) send_locked(s, *r);
  return stall;
}

int Link::advance() {
  if (condemned()) {
    fail_pending();
    return 0;
  }
  std::shared_ptr<Session> s;
  bool stall = false;
  {
    Guard g(mu_);
    if (condemned()) return 0;  // condemned meanwhile; it must not connect again
    if (current_ == nullptr) {
      connect_locked();
    } else {
      stall = stalled_locked();
    }
    s = current_;
  }
  if (s == nullptr) return 0;
  int events = s->pump() + s->endpoint().poll_both();
  if (events == 0 && stall) retire(s);
  return events;
}

}  // namespace cmi::fabric
