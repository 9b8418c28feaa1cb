// Answers to notifications, and what ends a round without them.
#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/holder.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/rounds.hpp"

namespace cmi::memory {

void InvalidationRounds::settle(const RoundPtr& p, Finished* done) {
  if (--p->waiting > 0) return;
  std::erase(p->direct_acks == 0 ? stores_ : received_, p);
  if (table_.has_lists()) table_.round_over(p->by, p->born, now(), watch_.dead_after());
  clear_intents(*p);
  const auto then = std::exchange(p->then, {});  // a few deep at most
  done->push_back([p] {
    if (p->finished) p->finished();
    p->done.complete(fabric::Cause::kOk);
  });
  for (const auto& next : then) settle(next, done);
}

void InvalidationRounds::after_stores(std::function<void()> then, Finished* done) {
  const RoundPtr rest = begin_round();
  rest->finished = std::move(then);
  for (auto& open : stores_) {
    ++rest->waiting;
    open->then.push_back(rest);
  }
  settle(rest, done);
}

void InvalidationRounds::over(uint64_t number, Finished* done) {
  const Notification n = table_.take(number);
  if (n.type == NotificationType::kRevoke) on_revocation_heard(n);
  settle(n.round, done);
  if (n.type != NotificationType::kInvalidate) return;
  Outbox::Waiting next = outbox_.over(n.to(), n.direct, n.named);
  if (next.pages.empty()) return;
  table_.end_wait(n.client, next.rounds.size());
  // What it has released since, by this answer most likely, it need not hear of.
  keep_shared(&next);
  if (next.pages.empty() || mutated("mutate_waiting_counts_as_notified")) {
    for (auto& round : std::exchange(next.rounds, {})) settle(round, done);
  }
  if (!next.pages.empty()) send_waiting(std::move(next));
}

void InvalidationRounds::keep_shared(Outbox::Waiting* waiting) const {
  const SegmentPtr s = segments_.find_uid(waiting->to.uid);
  const Sharer* const h =
      s != nullptr ? s->sharers.find(waiting->to.client, waiting->to.instance) : nullptr;
  if (h == nullptr) return;
  PageSet shared;
  for (const PageRange& r : h->regions.of(waiting->pages.all())) shared.add(r);
  waiting->pages = std::move(shared);
}

// Nothing of what waits is sent any more.
void InvalidationRounds::end_waits(const ContextId& client, const std::vector<RoundPtr>& rounds,
                                   Finished* done) {
  table_.end_wait(client, rounds.size());
  for (const RoundPtr& round : rounds) settle(round, done);
}

void InvalidationRounds::forget(const ContextId& client, Finished* done) {
  end_waits(client, outbox_.forget(client), done);
  over_if([&](const Notification& n) { return n.client == client; }, done);
  table_.forget(client);
}

void InvalidationRounds::forget(const SharerKey& gone, Finished* done) {
  end_waits(gone.client, outbox_.forget(gone), done);
  over_if([&](const Notification& n) { return n.to() == gone; }, done);
}

template <class Visit>
void InvalidationRounds::each_open(Visit visit) const {
  table_.for_each([&](const Notification& n) {
    visit(n.round);
    for (const RoundPtr& next : n.round->then) visit(next);
  });
  outbox_.for_each_round(visit);
}

std::vector<RoundPtr> InvalidationRounds::unanswered() const {
  std::vector<RoundPtr> rounds;
  each_open([&](const RoundPtr& round) {
    if (round->finished) rounds.push_back(round);
  });
  return rounds;
}

bool InvalidationRounds::keeps_from_gone(uint64_t uid, uint64_t holder) const {
  bool found = false;
  each_open([&](const RoundPtr& round) {
    found = found || (round->uid == uid && holder_of(round->by, round->instance) == holder) ||
            std::find(round->gone.begin(), round->gone.end(), holder) != round->gone.end();
  });
  return found;
}

// The importer has taken all that it had cached out of use.
void InvalidationRounds::on_revocation_heard(const Notification& revocation) {
  const SegmentPtr s = segments_.find_uid(revocation.uid);
  if (s == nullptr) return;
  Sharer* h = s->sharers.find(revocation.client, revocation.instance);
  if (h == nullptr || h->unacknowledged_revocations == 0) return;
  const bool was_shared = s->shared();
  --h->unacknowledged_revocations;
  shared_.changed(was_shared, s->shared());
}

// It has nothing of before any more. That of an older break says nothing of the newest.
void InvalidationRounds::on_break_heard(const Notification& n) {
  const SegmentPtr s = segments_.find_uid(n.uid);
  Sharer* h = s != nullptr ? s->sharers.find(n.client, n.instance) : nullptr;
  if (h == nullptr || n.break_round != s->brk.round) return;
  h->brk.peak = s->brk.bytes;
  h->brk.low = Sharer::kNoLow;
}

void InvalidationRounds::acknowledged(const ContextId& client, uint64_t number, Finished* done) {
  // None: its publisher may have said that it is over.
  const Notification* const n = table_.find(number);
  if (n == nullptr || n->client != client) return;
  table_.answered(number, now());
  if (n->type == NotificationType::kBreak) on_break_heard(*n);
  over(number, done);
}

void InvalidationRounds::acked_below(const ContextId& client, uint64_t below,
                                     std::span<const uint64_t> behind, Finished* done) {
  std::vector<RoundPtr> acked;
  std::copy_if(received_.begin(), received_.end(), std::back_inserter(acked), [&](auto& p) {
    return p->by == client && p->direct_acks != InvalidationRound::kEarlierSession &&
           (p->direct_acks < below ||
            std::binary_search(behind.begin(), behind.end(), p->direct_acks));
  });
  for (auto& p : acked) {
    p->finished = {};
    for (uint64_t n = table_.first_from(p->first_notification); n != 0 && n <= p->last_notification;
         n = table_.first_from(n + 1)) {
      over(n, done);
    }
  }
}

void InvalidationRounds::new_session(const ContextId& client) {
  table_.new_session(client);
  for (auto& p : received_) {
    if (p->by == client) p->direct_acks = InvalidationRound::kEarlierSession;
  }
}

void InvalidationRounds::close_received(const Segment& s, const ContextId& client,
                                        uint32_t instance, const RoundPtr& p) {
  for (auto& round : received_) {
    if (round->by != client || round->uid != s.uid) continue;
    if (instance != 0 && round->instance != instance) continue;
    if (!mutated("mutate_intents_of_received_lost")) clear_intents(*round);
    round->then.push_back(p);
    ++p->waiting;
  }
}

void InvalidationRounds::clear_intents(InvalidationRound& p) {
  const auto intents = std::exchange(p.intents, {});
  if (intents.empty()) return;
  const SegmentPtr s = segments_.find_uid(p.uid);
  Sharer* h = s != nullptr ? s->sharers.find(p.by, p.instance) : nullptr;
  if (h != nullptr) clear_intents(*s, *h, intents);  // else declared dead meanwhile
}

void InvalidationRounds::clear_intents(Segment& s, Sharer& h,
                                       const std::vector<DirtyIntent>& intents) {
  bool progress = false;
  for (const DirtyIntent& m : intents) {
    // Of an earlier epoch: there has been another intent for the page since. There is no new intent
    // for a page in flux.
    if (h.intents.drop_intent(m.page, m.epoch))
      progress = progress || s.flux.pages.contains(m.page);
  }
  if (progress) table_.made_progress(h.client, now());
}

void InvalidationRounds::resend(Nanos t) {
  table_.resend(t, [this](uint64_t number, const Notification& n) {
    watch_.look();  // an answer is overdue
    server_.notification(n.client, number, static_cast<uint16_t>(n.type), n.payload);
  });
}

}  // namespace cmi::memory
