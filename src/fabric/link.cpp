// Connecting, rebuilding, requests and their answers; those in direct acks: link_receipts.cpp.
#include "fabric/link.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "fabric/reach.hpp"

namespace cmi::fabric {

namespace {
constexpr Nanos kAskAgain = 50 * kMilli;
// Of those behind the oldest, each time.
constexpr size_t kMostAskedAgain = 16, kMostBytesAskedAgain = size_t{64} << 10;
// How long a hello is waited on before it is given up and sent anew: as long as the tries before it
// took together, so that a slow network is given the time that it needs; but there are several
// tries before who cannot be reached counts as dead.
constexpr Nanos kWelcomeWait = kSecond, kLongestWelcomeWait = 2 * kSecond;
constexpr int kTriesInALife = 4;
// The same of several routes, each: the first round is over in kRound or little more, however many
// there are, and those after it take twice as long each time.
constexpr Nanos kRound = 2 * kSecond, kLeastRouteWait = 50 * kMilli,
                kLongestRouteWait = 500 * kMilli;
constexpr size_t kMostRounds = 8;
}  // namespace

Link::Link(std::vector<Route> routes, Identity self, ContextId home, Nanos dead_after,
           Taking taking)
    : routes_(std::move(routes)),
      cas_(std::all_of(routes_.begin(), routes_.end(), [](const Route& r) { return r.cas; })),
      self_(std::move(self)),
      home_(home),
      taking_(std::move(taking)),
      longest_wait_(std::clamp(dead_after / kTriesInALife, kWelcomeWait, kLongestWelcomeWait)) {}

Link::Link(Fabric& fabric, Identity self, ContextId home, std::vector<std::byte> home_listener,
           Nanos dead_after)
    : Link({{&fabric, 0, fabric.traits().cas, self.listener, std::move(home_listener)}}, self, home,
           dead_after, {}) {}

Link::~Link() {
  std::shared_ptr<Session> last;
  Guard g(mu_);
  last.swap(current_);
}

std::vector<ListenerAddress> Link::home_doors() const {
  std::vector<ListenerAddress> listeners;
  for (const Route& r : routes_) {
    ListenerAddress listener = door_of(r);
    if (std::find(listeners.begin(), listeners.end(), listener) == listeners.end())
      listeners.push_back(listener);
  }
  return listeners;
}

// How long a hello may go unanswered.
Nanos Link::patience_locked() const {
  if (routes_.size() > 1) {
    const Nanos share =
        std::clamp(kRound / static_cast<Nanos>(routes_.size()), kLeastRouteWait, kLongestRouteWait);
    return std::min(share << std::min(in_vain_ / routes_.size(), kMostRounds), longest_wait_);
  }
  const Nanos tried = connecting_since_ - unreachable_since_.load(std::memory_order_relaxed);
  return std::clamp(tried, kWelcomeWait, longest_wait_);
}

void Link::try_another_locked() {
  ++in_vain_;
  if (routes_.size() == 1) return;
  const Route& before = route();
  route_.store((route_.load(std::memory_order_relaxed) + 1) % routes_.size(),
               std::memory_order_relaxed);
  taken_ = false;
  trace(kFacMem, kWarn, "link: home {:016x} does not answer at {} over {}: {} over {} is tried",
        home_.hi, listener_text(before.home_listener), before.fabric->traits().provider,
        listener_text(route().home_listener), route().fabric->traits().provider);
}

void Link::no_door_locked() {
  if (++no_doors_ >= routes_.size()) without_door_.store(true, std::memory_order_relaxed);
  try_another_locked();
}

void Link::connect_locked() {
  const Route& route = this->route();
  connecting_since_ = now();
  if (!taken_ && taking_ && !taking_(route)) return no_door_locked();
  taken_ = true;
  std::shared_ptr<Session> s(new Session(*this, route, ++generation_));
  auto port = fault_point_fails("link_no_endpoint") ? Status::kHw : Port::open(*route.fabric, *s);
  if (!port) {
    trace(kFacMem, kWarn, "link: no endpoint: {}", status_name(port.status()));
    // Nobody was asked anything: what we lack is not held against the home.
    no_doors_ = 0;
    if (++not_opened_ >= routes_.size()) {
      unreachable_since_.store(0, std::memory_order_relaxed);
      local_fault_.store(true, std::memory_order_release);
    }
    if (routes_.size() > 1) try_another_locked();  // the address may have gone for good
    return;
  }
  not_opened_ = 0;
  if (unreachable_since_.load(std::memory_order_relaxed) == 0) {
    unreachable_since_.store(connecting_since_, std::memory_order_relaxed);
  }
  s->port_ = port.take();
  auto listener = s->port_->add(route.home_listener);
  if (!listener) return no_door_locked();
  no_doors_ = 0;
  without_door_.store(false, std::memory_order_relaxed);
  s->door_ = *listener;
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
  out.blob(route.own_door);
  Frame f{FrameKind::kHello, 0, 0, 0, 0, out.done()};
  if (!out.ok()) return;
  current_ = s;
  s->port_->send(s->door_, f);
}

bool Link::left_to_waiters() {
  Guard g(mu_);
  return current_ != nullptr && current_->endpoint().awaited() &&
         current_->up_.load(std::memory_order_acquire) && !current_->broken() &&
         !current_->endpoint().broken() && current_->port_->idle() &&
         current_->detached_count_.load(std::memory_order_relaxed) == 0;
}

std::shared_ptr<Session> Link::current() {
  Guard g(mu_);
  return current_ != nullptr && current_->up_.load(std::memory_order_acquire) ? current_ : nullptr;
}

[[gnu::hot]] std::shared_ptr<Session> Link::session(Deadline deadline) {
  Backoff backoff;
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
      s->endpoint().wait(never, Deadline{std::min(deadline.at, now() + 2 * kMilli)});
    } else {
      backoff.pause();
    }
  }
}

void Link::retire(const std::shared_ptr<Session>& session) {
  if (session == nullptr) return;
  session->broken_.store(true, std::memory_order_release);
  const bool faulty = session->endpoint().faulty();
  if (faulty) local_fault_.store(true, std::memory_order_release);
  std::shared_ptr<Session> drop;
  Guard g(mu_);
  if (current_ == session) {
    drop.swap(current_);
    if (faulty) unreachable_since_.store(0, std::memory_order_relaxed);
    trace(kFacMem, kInfo, "link: session {} retired", session->generation_);
    if (!session->up_.load(std::memory_order_relaxed)) try_another_locked();
  }
}

bool Link::stalled(Session& s, Nanos since) const {
  return now() - std::max(s.heard_.load(std::memory_order_relaxed), since) > kStall;
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

// Not from start(): answers may need locks that its caller holds.
void Link::fail_pending() {
  std::deque<std::shared_ptr<Request>> dead;
  {
    Guard g(mu_);
    dead.swap(pending_);
    pending_count_.store(0, std::memory_order_relaxed);
  }
  for (auto& r : dead) lost(*r, Cause::kPeerLost);
}

// It is pending no more, and no answer will come.
void Link::lost(Request& r, Cause cause) {
  if (r.on_answer_) r.on_answer_({});
  if (r.late_) r.late_();
  r.op_.complete(cause);
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
    } else if (!current_->up_.load(std::memory_order_acquire)) {
      stall = now() - connecting_since_ > patience_locked() || current_->endpoint().broken();
    } else if (current_->endpoint().broken() || current_->broken()) {
      stall = true;
    } else if (!pending_.empty() || current_->detached_count_.load() != 0) {
      const Nanos since = std::max(
          connecting_since_, pending_.empty() ? current_->detached_since_.load() : owed_since_);
      stall = stalled(*current_, since);
      ask_again_locked(*current_, since);
    }
    s = current_;
  }
  if (s == nullptr) return 0;
  int events = s->pump() + s->endpoint().poll();
  if (events == 0 && stall) retire(s);
  return events;
}

// A reply that was lost, or a home that takes its time: asks for the oldest again. The home does
// each number once, and answers with a sign of life while it works on it. Replies to those behind
// it may be lost as well while the oldest waits: some of these are asked for each time, in turn.
void Link::ask_again_locked(Session& s, Nanos since) {
  if (pending_.empty()) return;
  Request& oldest = *pending_.front();
  const Nanos t = now();
  if (t - std::max({asked_again_, since, oldest.sent_at_}) <= kAskAgain) return;
  asked_again_ = t;
  repeat_locked(s, oldest, t);
  const auto sent = behind_locked(sent_to_);
  auto next = behind_locked(std::max(asked_to_, oldest.number_));
  if (next >= sent) next = std::next(pending_.begin());
  size_t looked_at = 0, bytes = 0;
  for (; next < sent && looked_at < kMostAskedAgain && bytes < kMostBytesAskedAgain; ++next) {
    ++looked_at;
    asked_to_ = (*next)->number_;
    if (t - (*next)->sent_at_ <= kAskAgain) continue;
    repeat_locked(s, **next, t);
    bytes += (*next)->payload_.size();
  }
}

void Link::repeat_locked(Session& s, Request& r, Nanos t) {
  r.repeated_ = true;
  send_locked(s, r, t);
}

void Link::send_locked(Session& s, Request& r, Nanos t) {
  r.sent_at_ = t;
  const uint64_t settled = settled_locked();
  if (!received_.empty()) {
    std::erase_if(received_, [&](uint64_t number) { return number < settled; });
  }
  std::array<std::byte, sizeof r.secret_> secret;
  std::memcpy(secret.data(), &r.secret_, sizeof r.secret_);
  s.port_->send(s.home_, {FrameKind::kRequest, r.type_, s.secret_, r.number_, settled, r.payload_,
                          r.receipts_ ? Bytes(secret) : Bytes()});
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
  heard_.store(t, std::memory_order_relaxed);
  unreachable_since_.store(0, std::memory_order_relaxed);
  local_fault_.store(false, std::memory_order_release);
  connecting_since_ = t;
  in_vain_ = 0;
  s.up_.store(true, std::memory_order_release);
  trace(kFacMem, kInfo, "link: home {:016x} is reached over {} at {}", home_.hi,
        s.route_.fabric->traits().provider, listener_text(s.route_.home_listener));
  sent_to_ = 0;
  // The endpoint that direct acks would come to has gone, and some with it.
  for (auto& r : pending_) r->secret_ = r->missing_ = 0;
  received_.clear();  // the home asks those whom it has told
  unsettled_ = UINT64_MAX;
  receipts_from_ = without_ = 0;
  send_more_locked(s, t);
}

// The first of those with a higher number.
std::deque<std::shared_ptr<Request>>::iterator Link::behind_locked(uint64_t number) {
  return std::upper_bound(
      pending_.begin(), pending_.end(), number,
      [](uint64_t n, const std::shared_ptr<Request>& r) { return n < r->number_; });
}

// In the order of their numbers.
void Link::send_more_locked(Session& s, Nanos t) {
  if (pending_.empty()) return;
  // Mostly it is the last one's turn.
  auto next = pending_.back()->number_ == sent_to_ + 1 ? std::prev(pending_.end())
                                                       : behind_locked(sent_to_);
  auto under_way = static_cast<size_t>(next - pending_.begin());
  for (; next != pending_.end() && under_way < kMostUnderWay; ++next, ++under_way) {
    sent_to_ = (*next)->number_;
    send_locked(s, **next, t);
  }
}

std::deque<std::shared_ptr<Request>>::iterator Link::find_locked(uint64_t number) {
  const auto it = std::lower_bound(
      pending_.begin(), pending_.end(), number,
      [](const std::shared_ptr<Request>& r, uint64_t n) { return r->number_ < n; });
  return it != pending_.end() && (*it)->number_ == number ? it : pending_.end();
}

// Null: answered on an earlier session, or forgotten.
std::shared_ptr<Request> Link::take_locked(uint64_t number) {
  const auto it = find_locked(number);
  if (it == pending_.end()) return nullptr;
  auto r = std::move(*it);
  pending_.erase(it);
  pending_count_.store(pending_.size(), std::memory_order_relaxed);
  return r;
}

void Link::replied(Session& s, const Frame& f) {
  if (f.secret != s.secret_) return;
  const Nanos t = now();
  s.heard_.store(t, std::memory_order_relaxed);
  heard_.store(t, std::memory_order_relaxed);
  std::shared_ptr<Request> r;
  {
    Guard g(mu_);
    r = take_locked(f.number);
    if (r == nullptr) return;
    // Of one that was asked for again nobody knows which of them it answers.
    if (!r->repeated_) took_.store(t - r->sent_at_, std::memory_order_relaxed);
    if (f.type == static_cast<uint16_t>(Shared::kYes)) receipts_missed_locked(*r, t);
    if (!pending_.empty() && pending_.back()->number_ > sent_to_ && current_.get() == &s) {
      send_more_locked(s, t);
    }
  }
  answer(*r, f.payload);
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

std::shared_ptr<Request> Link::start(uint16_t type, Bytes payload, Request::Callback on_answer,
                                     DirectAcks direct_acks) {
  auto r = std::make_shared_for_overwrite<Request>();  // its room need not be cleared
  r->type_ = type;
  r->payload_ = r->keep(payload);
  r->on_answer_ = std::move(on_answer);
  r->op_.begin();
  const Nanos t = r->begun_at_ = now();
  Guard g(mu_);
  r->number_ = next_number_++;
  r->receipts_ = direct_acks == DirectAcks::kTaken;
  if (r->receipts_ && t >= receipts_from_ && !fault_point_fails("receipts_not_asked_for")) {
    r->secret_ = r->missing_ = secrets_.next();
  }
  pending_.push_back(r);
  pending_count_.store(pending_.size(), std::memory_order_relaxed);
  // A session that has been idle owes nothing yet: its silence counts from now.
  if (pending_.size() == 1) owed_since_ = t;
  if (current_ != nullptr && current_->up_.load(std::memory_order_acquire)) {
    send_more_locked(*current_, t);
  }
  return r;
}

Cause Link::await(const std::shared_ptr<Request>& request, Deadline deadline) {
  while (!request->answered()) {
    if (deadline.passed()) return Cause::kTimeout;
    auto s = session(deadline);
    if (condemned()) fail_pending();
    if (s == nullptr) continue;
    if (request->answered()) break;
    s->pump();
    s->endpoint().wait(request->op_, Deadline{std::min(deadline.at, now() + 10 * kMilli)});
    if (!request->answered()) advance();
  }
  return request->op_.cause();
}

void Link::forget(const std::shared_ptr<Request>& request) {
  Guard g(mu_);
  take_locked(request->number_);
  if (current_ != nullptr && current_->up_.load(std::memory_order_acquire)) {
    send_more_locked(*current_, now());
  }
}

bool Link::when_late(const std::shared_ptr<Request>& request, std::function<void()> late) {
  Guard g(mu_);
  const auto it = std::find(pending_.begin(), pending_.end(), request);
  if (it == pending_.end()) return false;
  request->late_ = std::move(late);
  return true;
}

void Link::give_up(Nanos asked_before) {
  std::vector<std::shared_ptr<Request>> given_up;
  std::shared_ptr<Session> session;
  {
    Guard g(mu_);
    std::erase_if(pending_, [&](auto& p) {
      if (p->begun_at_ > asked_before) return false;
      given_up.push_back(p);
      return true;
    });
    for (auto& p : given_up) {
      if (p->secret_ != 0) unsettled_ = std::min(unsettled_, p->number_);
    }
    pending_count_.store(pending_.size(), std::memory_order_relaxed);
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
