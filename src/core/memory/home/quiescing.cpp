#include "core/memory/home/quiescing.hpp"

#include <algorithm>

#include "core/base/log.hpp"

namespace cmi::memory {

namespace {
constexpr size_t kMaxAskers = 64;  // that wait for one segment to be quiesced
}  // namespace

void notify_quiesce(HomeCore& home, Segment& s, Sharer& h, const RoundPtr& p) {
  h.quiesce.awaited = s.quiesce.on;
  h.quiesce.notified = s.quiesce.round;
  const QuiesceNotification m{s.uid, h.instance, s.quiesce.round};
  home.rounds.notify(p, s, h, s.quiesce.on ? NotificationType::kQuiesce : NotificationType::kResume,
                     Encoded(m));
}

void complete_quiesce(Segment& s, Finished* done) {
  if (!s.removed && s.quiesce.on &&
      (s.quiesce.unacknowledged ||
       std::any_of(s.sharers.begin(), s.sharers.end(),
                   [](const Sharer& h) { return h.quiesce.awaited; }))) {
    return;
  }
  for (auto& f : s.quiesce.quiescent) done->push_back(std::move(f));
  s.quiesce.quiescent.clear();
}

Status Quiescing::quiesce(int32_t id, std::function<void()> quiescent) {
  SignalsBlocked quiet;
  Finished done;
  bool begins = false;
  {
    Guard g(home_.mu);
    const SegmentPtr s = home_.segments.find(id);
    if (s == nullptr || s->removed) return Status::kInval;
    if (!s->owned) return Status::kPerm;
    if (s->quiesce.quiescent.size() >= kMaxAskers) return Status::kNoMem;
    s->quiesce.quiescent.push_back(std::move(quiescent));
    begins = !s->quiesce.on;
    if (begins) {
      s->quiesce.on = s->quiesce.unacknowledged = true;
      ++s->quiesce.round;
      home_.parts.node.marks().note(id, node::kMarkQuiesced, 0);
      notify_importers(*s, &done);
    }
    complete_quiesce(*s, &done);
  }
  (void)home_.parts.node.marks().settle(2 * kMilli);
  if (begins) trace(kFacEvt, kInfo, "segment {}: quiesced", id);
  run(done);
  return Status::kOk;
}

void Quiescing::notify_importers(Segment& s, Finished* done) {
  const RoundPtr p = begin_round();
  p->finished = [this, id = s.id, round = s.quiesce.round] { notify_own_client(id, round); };
  for (auto& h : s.sharers) notify_quiesce(home_, s, h, p);
  home_.rounds.settle(p, done);
}

// The client is not notified of a round that a newer one has overtaken, nor of a resume if it was
// not notified of the quiesce before.
void Quiescing::notify_own_client(int32_t id, uint32_t round) {
  bool on = false;
  {
    Guard g(home_.mu);
    const SegmentPtr s = home_.segments.find(id);
    if (s == nullptr || s->removed || s->quiesce.round != round) return;
    on = s->quiesce.on;
    if (!on && !s->quiesce.notified) return;
    s->quiesce.notified = on;
  }
  (void)home_.parts.node.marks().settle(2 * kMilli);  // where the registry was not to be had before
  if (on) {
    home_.parts.observer.quiesced(id, [this, id, round] { own_client_returned(id, round); });
  } else {
    home_.parts.observer.resumed(id);
  }
}

Status Quiescing::resume(int32_t id) {
  SignalsBlocked quiet;
  Finished done;
  {
    Guard g(home_.mu);
    const SegmentPtr s = home_.segments.find(id);
    if (s == nullptr || s->removed) return Status::kInval;
    if (!s->owned) return Status::kPerm;
    if (!s->quiesce.on) return Status::kOk;
    s->quiesce.on = s->quiesce.unacknowledged = false;
    ++s->quiesce.round;
    home_.parts.node.marks().note(id, 0, node::kMarkQuiesced);
    // Quiesce notifications that were not taken in yet are void: their round is over.
    notify_importers(*s, &done);
    complete_quiesce(*s, &done);
  }
  (void)home_.parts.node.marks().settle(2 * kMilli);
  trace(kFacEvt, kInfo, "segment {}: resumed", id);
  run(done);
  return Status::kOk;
}

void Quiescing::own_client_returned(int32_t id, uint32_t round) {
  Finished done;
  {
    Guard g(home_.mu);
    const SegmentPtr s = home_.segments.find(id);
    if (s == nullptr || s->quiesce.round != round) return;
    s->quiesce.unacknowledged = false;
    complete_quiesce(*s, &done);
  }
  run(done);
}

}  // namespace cmi::memory
