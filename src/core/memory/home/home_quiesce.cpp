// Quiescing segments of this node: their clients are asked to stop, here and wherever they are
// imported, and seg_at refuses them until they are resumed. Rounds are numbered, so that what comes
// late is told apart. Nothing here waits for a client.
#include <algorithm>

#include "core/base/log.hpp"
#include "core/memory/home/home.hpp"

namespace cmi::memory {

namespace {
constexpr size_t kMaxAskers = 64;  // who wait for one segment to be quiesced
}

void Home::notify_quiesce(Segment& s, Sharer& h, Finished* done) {
  h.awaits_quiesce = s.quiesce.on;
  h.quiesce_notified = s.quiesce.round;
  auto p = std::make_shared<InvalidationRound>();
  p->waiting = 1;
  p->done.begin();
  const QuiesceNotification m{s.uid, h.instance, s.quiesce.round};
  notify(p, s, h, s.quiesce.on ? NotificationType::kQuiesce : NotificationType::kResume,
         Encoded(m));
  settle(p, done);
}

// Runs what waited for the clients if none owes anything any more.
void Home::complete_quiesce(Segment& s, Finished* done) {
  if (!s.removed && s.quiesce.on &&
      (s.quiesce.unacknowledged || std::any_of(s.sharers.begin(), s.sharers.end(),
                                               [](const Sharer& h) { return h.awaits_quiesce; }))) {
    return;
  }
  for (auto& f : s.quiesce.settled) done->push_back(std::move(f));
  s.quiesce.settled.clear();
}

Status Home::quiesce(int32_t id, std::function<void()> settled) {
  SignalsBlocked quiet;
  Finished done;
  bool begins = false;
  uint32_t round = 0;
  {
    Guard g(mu_);
    Segment* s = find(id);
    if (s == nullptr || s->removed) return Status::kInval;
    if (!s->owned) return Status::kPerm;
    if (s->quiesce.settled.size() >= kMaxAskers) return Status::kNoMem;
    s->quiesce.settled.push_back(std::move(settled));
    begins = !s->quiesce.on;
    if (begins) {
      s->quiesce.on = s->quiesce.unacknowledged = true;
      round = ++s->quiesce.round;
      parts_.node.note_marks(id, node::kMarkQuiesced, 0);
      for (auto& h : s->sharers) notify_quiesce(*s, h, &done);
    }
    complete_quiesce(*s, &done);
  }
  (void)parts_.node.settle_marks(2 * kMilli);
  run(done);
  if (begins) {
    trace(kFacEvt, kInfo, "segment {}: quiesced", id);
    parts_.observer.quiesced(id, [this, id, round] { own_client_returned(id, round); });
  }
  return Status::kOk;
}

Status Home::resume(int32_t id) {
  SignalsBlocked quiet;
  Finished done;
  {
    Guard g(mu_);
    Segment* s = find(id);
    if (s == nullptr || s->removed) return Status::kInval;
    if (!s->owned) return Status::kPerm;
    if (!s->quiesce.on) return Status::kOk;
    s->quiesce.on = s->quiesce.unacknowledged = false;
    ++s->quiesce.round;
    parts_.node.note_marks(id, 0, node::kMarkQuiesced);
    // Quiesce notices that were not taken in yet are void: their round is over.
    for (auto& h : s->sharers) notify_quiesce(*s, h, &done);
    complete_quiesce(*s, &done);
  }
  (void)parts_.node.settle_marks(2 * kMilli);
  run(done);
  trace(kFacEvt, kInfo, "segment {}: resumed", id);
  parts_.observer.resumed(id);
  return Status::kOk;
}

void Home::own_client_returned(int32_t id, uint32_t round) {
  Finished done;
  {
    Guard g(mu_);
    Segment* s = find(id);
    if (s == nullptr || s->quiesce.round != round) return;
    s->quiesce.unacknowledged = false;
    complete_quiesce(*s, &done);
  }
  run(done);
}

void Home::on_returned(const fabric::ClientInfo& client, uint64_t number,
                       const ReturnedRequest& m) {
  Finished done;
  {
    Guard g(mu_);
    Segment* s = find_uid(m.uid);
    Sharer* h = s != nullptr ? find_sharer(*s, client.id, m.instance) : nullptr;
    if (h != nullptr && s->quiesce.round == m.round) {
      h->awaits_quiesce = false;
      complete_quiesce(*s, &done);
    }
  }
  run(done);
  reply(parts_.server, client.id, number, WireStatus::kOk);
}

void Home::on_bus_quiesce(const BusFrom& from, const BusQuiesce& m) {
  const auto say = [this, to = from.slot(), segment = m.segment, question = m.question](
                       Status status) { answer(to, segment, question, status); };
  if (m.on > 1) return say(Status::kInval);
  const Status status =
      m.on != 0 ? quiesce(m.segment, [say] { say(Status::kOk); }) : resume(m.segment);
  if (m.on == 0 || !ok(status)) say(status);
}

}  // namespace cmi::memory
