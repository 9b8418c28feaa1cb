// A Link's requests and their answers, the home's own and direct ones (protocol rule 26).
// Connecting: link_connect.cpp.
#include "fabric/link.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"

namespace cmi::fabric {

Link::Link(std::vector<Route> routes, Identity self, ContextId home, Nanos dead_after,
           Taking taking, std::atomic<uint64_t>* held_back)
    : self_(std::move(self)),
      home_(home),
      routes_(std::move(routes), dead_after, std::move(taking)),
      held_back_(held_back) {}

Link::Link(Fabric& fabric, Identity self, ContextId home, std::vector<std::byte> home_listener,
           Nanos dead_after)
    : Link({{&fabric, 0, fabric.traits().cas, self.listener, std::move(home_listener)}}, self, home,
           dead_after, {}) {}

Link::~Link() {
  std::shared_ptr<Session> last;
  Guard g(mu_);
  last.swap(current_);
}

std::vector<ListenerAddress> Link::home_listeners() const {
  std::vector<ListenerAddress> all;
  for (const Route& r : routes_.all()) {
    ListenerAddress at = listener_of(r);
    if (std::find(all.begin(), all.end(), at) == all.end()) all.push_back(std::move(at));
  }
  return all;
}

std::shared_ptr<Request> Link::start(uint16_t type, Bytes payload, Request::Callback on_answer,
                                     DirectAcks direct_acks) {
  auto r = std::make_shared_for_overwrite<Request>();  // its room need not be cleared
  r->type_ = type;
  r->payload_ = r->keep(payload);
  r->on_answer_ = std::move(on_answer);
  r->op_.begin();
  const Nanos t = now();
  Guard g(mu_);
  r->takes_direct_acks_ = direct_acks == DirectAcks::kTaken;
  if (r->takes_direct_acks_ && direct_acks_.may_ask(t) &&
      !fault_point_fails("direct_acks_not_asked_for")) {
    r->tokens_.expect(secrets_.next());
  }
  window_.add(r, t);
  if (up_locked()) send_more_locked(*current_, t);
  return r;
}

void Link::send_locked(Session& s, Request& r) {
  const uint64_t acked_below = direct_acks_.acked_below(window_.answered_below());
  const uint64_t tokens_secret = r.tokens_.secret();
  const auto secret = std::as_bytes(std::span(&tokens_secret, 1));
  s.send({FrameKind::kRequest, r.type_, s.secret_, r.number_, acked_below, r.payload_,
          r.takes_direct_acks_ ? Bytes(secret) : Bytes()});
}

void Link::send_more_locked(Session& s, Nanos t) {
  while (Request* r = window_.next_to_send(t)) send_locked(s, *r);
  const uint64_t held_back = window_.take_held_back();
  if (held_back != 0 && held_back_ != nullptr) {
    held_back_->fetch_add(held_back, std::memory_order_relaxed);
  }
}

// `r` has been taken out of the window.
void Link::answered_locked(Session& s, const Request& r, Nanos t) {
  // Nobody knows which sending of a repeated request an answer belongs to.
  if (!r.repeated_) health_.answered_in(t - r.sent_at_);
  window_.answered(r, t);
  if (window_.has_unsent() && current_.get() == &s) send_more_locked(s, t);
}

void Link::replied(Session& s, const Frame& f) {
  if (f.secret != s.secret_) return;
  const Nanos t = now();
  s.heard_.store(t, std::memory_order_relaxed);
  health_.heard_at(t);
  std::shared_ptr<Request> r;
  {
    Guard g(mu_);
    const bool present = current_.get() == &s;
    if (present) window_.allow(f.acked_below);
    r = window_.take(f.number);
    if (r == nullptr) {
      if (present && window_.has_unsent()) send_more_locked(s, t);
      return;
    }
    if (f.type == static_cast<uint16_t>(TokensSent::kYes) && r->tokens_.expected()) {
      direct_acks_.answered_by_home(r->begun_at_, t);
    }
    answered_locked(s, *r, t);
  }
  answer(*r, f.payload);
}

// A token that is none of this request's keeps the others from being complete: the home's answer is
// waited for then. A token that comes twice counts once: messages may.
void Link::received(Session& s, const Frame& f) {
  std::shared_ptr<Request> r;
  {
    Guard g(mu_);
    if (current_.get() != &s) return;
    r = window_.find(f.number);
    if (r == nullptr || !r->tokens_.expected() || !r->tokens_.take(f.secret)) return;
    if (!r->tokens_.complete() && !mutated("mutate_one_direct_ack_suffices")) return;
    window_.take(f.number);
    direct_acks_.complete(f.number);
    // The home has sent the notifications, so it is there.
    const Nanos t = now();
    s.heard_.store(t, std::memory_order_relaxed);
    health_.heard_at(t);
    answered_locked(s, *r, t);
  }
  fault_point("link_received_before_answer");
  answer(*r, kReceived);
}

bool Link::report_acked_below() {
  Guard g(mu_);
  if (!direct_acks_.has_unreported() || !up_locked()) return false;
  Session& s = *current_;
  const uint64_t acked_below = direct_acks_.acked_below(window_.answered_below());
  s.send({FrameKind::kAckedBelow, 0, s.secret_, 0, acked_below,
          std::as_bytes(direct_acks_.unreported())});
  direct_acks_.reported();
  return true;
}

void Link::answer(Request& r, Bytes reply) {
  fault_point("link_reply_before_answer");
  if (r.on_answer_) {
    r.on_answer_(reply);
  } else {
    r.reply_ = r.keep(reply);
  }
  if (r.late_) r.late_();
  r.op_.complete(Cause::kOk);
}

// It is pending no more, and no answer will come.
void Link::lost(Request& r, Cause cause) {
  if (r.on_answer_) r.on_answer_({});
  if (r.late_) r.late_();
  r.op_.complete(cause);
}

// Not from start(): answers may need locks that its caller holds.
void Link::fail_pending() {
  std::deque<std::shared_ptr<Request>> dead;
  {
    Guard g(mu_);
    dead = window_.take_all();
  }
  for (auto& r : dead) lost(*r, Cause::kPeerLost);
}

Cause Link::await(const std::shared_ptr<Request>& request, Deadline deadline) {
  WaitSlices slices(deadline);
  while (!request->answered()) {
    if (deadline.passed()) return Cause::kTimeout;
    auto s = session(deadline);
    if (condemned()) fail_pending();
    if (s == nullptr) continue;
    if (request->answered()) break;
    s->pump();
    // Direct acks come over the network. Set before anybody has the request.
    if (request->takes_direct_acks_) {
      s->endpoint().wait(request->op_, slices.next());
    } else {
      s->wait(request->op_, slices.next());
    }
    if (!request->answered()) advance();
  }
  return request->op_.cause();
}

void Link::forget(const std::shared_ptr<Request>& request) {
  Guard g(mu_);
  window_.take(request->number_);
  if (up_locked()) send_more_locked(*current_, now());
}

bool Link::when_late(const std::shared_ptr<Request>& request, std::function<void()> late) {
  Guard g(mu_);
  if (window_.find(request->number_) != request) return false;
  request->late_ = std::move(late);
  return true;
}

void Link::give_up(Nanos asked_before) {
  std::vector<std::shared_ptr<Request>> given_up;
  std::shared_ptr<Session> session;
  {
    Guard g(mu_);
    given_up = window_.take_begun_by(asked_before);
    for (auto& r : given_up) {
      if (r->tokens_.expected()) direct_acks_.given_up(r->number_);
    }
    session = current_;
  }
  if (given_up.empty()) return;
  trace(kFacMem, kWarn, "link: {} requests are given up", given_up.size());
  retire(session);
  for (auto& r : given_up) lost(*r, Cause::kTimeout);
}

Result<std::vector<std::byte>> Link::call(uint16_t type, Bytes payload, Deadline deadline) {
  auto r = start(type, payload);
  if (await(r, deadline) != Cause::kOk) {
    forget(r);
    return Status::kReconfig;
  }
  return std::vector<std::byte>(r->reply().begin(), r->reply().end());
}

}  // namespace cmi::fabric
