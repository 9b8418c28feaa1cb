// One life of a link: its operations and what arrives on its endpoint.
#include <algorithm>

#include "core/base/fault_point.hpp"
#include "fabric/link.hpp"

namespace cmi::fabric {

Session::~Session() {
  // Order matters: the endpoint is closed before the slots its operations point into are freed, and
  // before the end of an operation is reported.
  port_.reset();
  std::list<Detached> lost;
  {
    Guard g(detached_mu_);
    lost.swap(detached_);
  }
  link_.detached_count_.fetch_sub(lost.size());
  for (auto& d : lost) d.ended(Cause::kCancelled);
}

[[gnu::hot]] Session::Slot* Session::take_slot() {
  if (Slot* s = spare_.exchange(nullptr, std::memory_order_acquire)) return s;
  Guard g(slots_mu_);
  if (free_slots_.empty()) {
    slots_.push_back(std::make_unique<Slot>());
    return slots_.back().get();
  }
  Slot* s = free_slots_.back();
  free_slots_.pop_back();
  return s;
}

void Session::give_slot(Slot* slot) {
  Slot* none = nullptr;
  if (spare_.compare_exchange_strong(none, slot, std::memory_order_acq_rel)) return;
  Guard g(slots_mu_);
  free_slots_.push_back(slot);
}

// An operation that is not over when this returns keeps its slot until the session is destroyed.
template <class PostFn>
Cause Session::run(Slot& slot, Deadline deadline, PostFn post,
                   const std::function<void()>& meanwhile) {
  Backoff backoff;
  for (;;) {
    if (broken()) return Cause::kCancelled;
    Post p = post(slot);
    if (p == Post::kPosted) break;
    if (p == Post::kFailed) return Cause::kPeerLost;
    if (deadline.passed()) return Cause::kTimeout;
    if (endpoint().poll() == 0) backoff.pause();
  }
  // Where others wait here as well, the time is theirs.
  if (meanwhile && !endpoint().awaited()) meanwhile();
  // In slices, so that a session that another thread has retired is released soon.
  WaitSlices slices(deadline);
  while (!slot.op.done()) {
    if (deadline.passed()) return Cause::kTimeout;
    if (broken()) return Cause::kCancelled;
    endpoint().wait(slot.op, slices.next());
  }
  if (slot.op.cause() == Cause::kOk) heard_.store(now_or_a_tick_ago(), std::memory_order_relaxed);
  return slot.op.cause();
}

Cause Session::finish(Slot* slot, Cause c) {
  if (!slot->op.in_flight()) give_slot(slot);
  return c;
}

[[gnu::hot]] Cause Session::read(void* to, size_t len, RemoteKey from, uint64_t offset,
                                 Deadline deadline, const std::function<void()>& meanwhile) {
  Slot* slot = take_slot();
  const auto post = [&](Slot& s) { return endpoint().read(s.op, home_, to, len, from, offset); };
  return finish(slot, run(*slot, deadline, post, meanwhile));
}

Cause Session::write(const void* from, size_t len, RemoteKey to, uint64_t offset,
                     Deadline deadline) {
  Slot* slot = take_slot();
  return finish(slot, run(*slot, deadline, [&](Slot& s) {
                  return endpoint().write(s.op, home_, from, len, to, offset);
                }));
}

Cause Session::cas(uint64_t* found, uint64_t expected, uint64_t desired, RemoteKey at,
                   uint64_t offset, Deadline deadline) {
  Slot* slot = take_slot();
  slot->expected = expected;
  slot->desired = desired;
  swaps_.fetch_add(1, std::memory_order_relaxed);
  Cause c = run(*slot, deadline, [&](Slot& s) {
    return endpoint().cas(s.op, home_, &s.found, &s.expected, &s.desired, at, offset);
  });
  swaps_.fetch_sub(1, std::memory_order_relaxed);
  if (c == Cause::kOk) *found = slot->found;
  return finish(slot, c);
}

void Session::Detached::over(Op& op) {
  auto* d = static_cast<Detached*>(op.user);
  Session& s = d->session;
  // Pollers hold the session, so the last reference is not dropped in here. Without one it is being
  // destroyed, and its destructor reports what is still in the list.
  const std::shared_ptr<Session> alive = s.weak_from_this().lock();
  if (alive == nullptr) return;
  const bool good = op.cause() == Cause::kOk && !fault_point_fails("completion_lost");
  Ended ended;
  {
    Guard g(s.detached_mu_);
    s.detached_bytes_ -= d->len;
    if (good) {
      ended = std::move(d->ended);
      s.detached_.erase(d->self);
      s.detached_count_.fetch_sub(1);
      s.link_.detached_count_.fetch_sub(1);
    }
  }
  // Another one of the same connection may still be in flight, or applied by the home later: only
  // the end of the session says that this one is not.
  if (!good) return s.link_.retire(alive);
  s.heard_.store(now(), std::memory_order_relaxed);
  s.pump();
  ended(Cause::kOk);
}

void Session::start(size_t len, std::function<Post(Op&)> post, Ended ended) {
  {
    Guard g(detached_mu_);
    detached_.emplace_back(*this);
    Detached& d = detached_.back();
    d.self = std::prev(detached_.end());
    d.len = len;
    d.post = std::move(post);
    d.ended = std::move(ended);
    unposted_.push_back(&d);
    if (detached_count_.load() == 0) detached_since_.store(now());  // before it counts
    detached_count_.fetch_add(1);
    link_.detached_count_.fetch_add(1);
  }
  pump();
}

int Session::pump() {
  int posted = port_->pump() + (by_ring() ? ring_->pump() : 0);
  if (detached_count_.load(std::memory_order_relaxed) == 0) return posted;
  Guard g(detached_mu_);
  while (!unposted_.empty() && !broken()) {
    Detached& d = *unposted_.front();
    if (detached_bytes_ != 0 && detached_bytes_ + d.len > kDetachedBytes) break;
    const Post p = d.post(d.op);  // never calls back into us: completions come from poll()
    if (p == Post::kAgain) break;
    unposted_.pop_front();
    if (p == Post::kFailed) {
      broken_.store(true, std::memory_order_release);
      break;
    }
    detached_bytes_ += d.len;
    ++posted;
  }
  return posted;
}

void Session::start_read(void* to, size_t len, RemoteKey from, uint64_t offset, Ended ended) {
  start(
      len, [=, this](Op& op) { return endpoint().read(op, home_, to, len, from, offset); },
      std::move(ended));
}

void Session::start_write(const void* from, size_t len, RemoteKey to, uint64_t offset,
                          Ended ended) {
  start(
      len,
      [=, this](Op& op) {
        if (fault_point_fails("bulk_write_not_posted")) return Post::kFailed;
        return endpoint().write(op, home_, from, len, to, offset);
      },
      std::move(ended));
}

void Session::open_ring(std::unique_ptr<ring::Channel> ring) {
  ring_ = std::move(ring);
  endpoint().go_also(*this);
}

void Session::send(const Frame& frame) {
  if (by_ring()) {
    ring_->send(frame);
  } else {
    port_->send(home_, frame);
  }
}

bool Session::descriptors(std::vector<int>* fds) {
  if (endpoint().may_sleep()) fds->push_back(endpoint().wait_fd());
  // Also before requests go by it: the home answers by the ring as soon as it has that.
  OtherWay* const ring = endpoint().other_way();
  if (ring == nullptr) return true;
  const bool may = ring->may_sleep();
  fds->push_back(ring->wait_fd());
  return may;
}

// The first message that comes by it says that the home has the ring.
void Session::on_ring_message(ring::Channel&, Bytes message) {
  Frame f;
  if (!decode_frame(message, &f) || f.kind != FrameKind::kReply || f.secret != secret_) return;
  if (!by_ring()) link_.has_ring(*this);
  link_.replied(*this, f);
}

void Session::on_message(Endpoint&, Bytes message) {
  Frame f;
  if (!decode_frame(message, &f)) return;
  if (f.kind == FrameKind::kWelcome) link_.welcomed(*this, f);
  if (f.kind == FrameKind::kRefusal) link_.refused(*this, f);
  if (f.kind == FrameKind::kDirectAck && up_.load(std::memory_order_acquire)) {
    link_.received(*this, f);
  }
  if (f.kind == FrameKind::kReply && up_.load(std::memory_order_acquire)) link_.replied(*this, f);
}

}  // namespace cmi::fabric
