// One life of a link: its operations and what arrives on its endpoint.
#include <algorithm>

#include "fabric/link.hpp"

namespace cmi::fabric {

Session::~Session() {
  // Order matters: the endpoint is closed before the slots its operations point into are freed.
  port_.reset();
}

Session::Slot* Session::take_slot() {
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
  Guard g(slots_mu_);
  free_slots_.push_back(slot);
}

// An operation that is not over when this returns keeps its slot until the session is destroyed.
template <class PostFn>
Cause Session::run(Slot& slot, Deadline deadline, PostFn post) {
  Backoff backoff;
  for (;;) {
    if (broken()) return Cause::kCancelled;
    Post p = post(slot);
    if (p == Post::kPosted) break;
    if (p == Post::kFailed) return Cause::kPeerLost;
    if (deadline.passed()) return Cause::kTimeout;
    if (endpoint().poll() == 0) backoff.pause();
  }
  // In slices, so that a session retired by another thread is let go of soon.
  while (!slot.op.done()) {
    if (deadline.passed()) return Cause::kTimeout;
    if (broken()) return Cause::kCancelled;
    endpoint().wait(slot.op, Deadline{std::min(deadline.at, now() + 10 * kMilli)});
  }
  if (slot.op.cause() == Cause::kOk) heard_.store(now(), std::memory_order_relaxed);
  return slot.op.cause();
}

Cause Session::finish(Slot* slot, Cause c) {
  if (!slot->op.in_flight()) give_slot(slot);
  return c;
}

Cause Session::read(void* to, size_t len, RemoteKey from, uint64_t offset, Deadline deadline) {
  Slot* slot = take_slot();
  return finish(slot, run(*slot, deadline, [&](Slot& s) {
                  return endpoint().read(s.op, home_, to, len, from, offset);
                }));
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
  Cause c = run(*slot, deadline, [&](Slot& s) {
    return endpoint().cas(s.op, home_, &s.found, &s.expected, &s.desired, at, offset);
  });
  if (c == Cause::kOk) *found = slot->found;
  return finish(slot, c);
}

void Session::on_message(Endpoint&, Bytes message) {
  Frame f;
  if (!decode_frame(message, &f)) return;
  if (f.kind == FrameKind::kWelcome) link_.welcomed(*this, f);
  if (f.kind == FrameKind::kReply && up_.load(std::memory_order_acquire)) link_.replied(*this, f);
}

}  // namespace cmi::fabric
