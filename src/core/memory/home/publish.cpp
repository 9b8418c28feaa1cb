// Publications: who may hold copies of these pages is told to drop them, and the publisher is
// answered when all have, or are fenced as dead.
#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/base/spin.hpp"
#include "core/memory/home/home.hpp"
#include "core/memory/home/home_mutations.hpp"

namespace cmi::memory {

namespace {
constexpr Nanos kResend = 20 * kMilli;  // then ever more rarely
constexpr Nanos kAgainSoon = 200 * kMilli;
constexpr size_t kMaxTimerScans = 32;
// Of notices without an answer, from which on none takes updates along: they are kept until then.
constexpr size_t kMostKept = size_t{1} << 20;
constexpr int kDeadlineExtension = 3;  // times as long as a peer may owe an answer
}  // namespace

void Home::run(Finished& done) {
  for (auto& f : done) f();
  done.clear();
}

// A list is answered once what was stored to its pages is at home, and that may wait for others.
// But of one whose receiver comes no nearer there is an end: it is to be begun in time.
bool Home::excuses(Nanos begun, const Notification& list) const {
  return begun < list.progress_at + kDeadlineExtension * parts_.watch.dead_after();
}

// The time to answer begins anew with the end of each excuse, as long as there is one: a lease is
// given while there is.
void Home::published(const ContextId& by, Nanos begun) {
  if (lists_notified_ == 0 || !by) return;
  const Nanos t = now();
  for (auto& [number, n] : notifications_) {
    if (n.type != NotificationType::kInFlux || n.client != by) continue;
    if (begun <= n.born) n.progress_at = t;
    if (excuses(begun, n)) n.due = t;
  }
}

void Home::made_progress(const ContextId& client) {
  if (lists_notified_ == 0) return;
  const Nanos t = now();
  for (auto& [number, n] : notifications_) {
    if (n.type == NotificationType::kInFlux && n.client == client) n.progress_at = n.due = t;
  }
}

void Home::settle(const std::shared_ptr<InvalidationRound>& p, Finished* done) {
  if (--p->waiting > 0) return;
  std::erase(p->direct_acks == 0 ? scans_ : received_, p);
  published(p->by, p->born);
  clear_intents(*p);
  const auto then = std::exchange(p->then, {});  // those have none of their own
  done->push_back([p] {
    if (p->finished) p->finished();
    p->done.complete(fabric::Cause::kOk);
  });
  for (const auto& next : then) settle(next, done);
}

void Home::notify(const std::shared_ptr<InvalidationRound>& p, const Segment& s, const Sharer& h,
                  NotificationType type, Bytes payload) {
  notify(p, h.client, s.uid, h.instance, type, payload);
}

void Home::notify(const std::shared_ptr<InvalidationRound>& p, const ContextId& client,
                  uint64_t uid, uint32_t instance, NotificationType type, Bytes payload) {
  Sent sent;
  send(client, uid, instance, type, {payload.begin(), payload.end()}, &sent);
  keep(p, std::move(sent));
}

void Home::send(const ContextId& client, uint64_t uid, uint32_t instance, NotificationType type,
                std::vector<std::byte> payload, Sent* sent, const fabric::DirectAck& direct_ack) {
  const uint64_t number = next_notification_++;
  parts_.server.notification(client, number, static_cast<uint16_t>(type), payload, false,
                             direct_ack);
  Notification n;
  n.client = client;
  n.type = type;
  n.uid = uid;
  n.instance = instance;
  n.payload = std::move(payload);
  sent->emplace_back(number, std::move(n));
}

void Home::keep(const std::shared_ptr<InvalidationRound>& p, Sent sent) {
  const Nanos t = now();
  for (auto& [number, n] : sent) {
    size_t& unacknowledged = notifications_of_[n.client];
    n.round = p;
    n.born = n.sent = n.due = n.progress_at = t;
    const bool list = n.type == NotificationType::kInFlux;
    kept_bytes_ += n.payload.size();
    notifications_.emplace_hint(notifications_.end(), number, std::move(n));
    ++p->waiting;
    if (list) ++lists_notified_;
    if (++unacknowledged == kMaxNotifications) parts_.watch.look();  // it does not read them
  }
}

void Home::notify_ranges(const std::shared_ptr<InvalidationRound>& p, const Segment& s,
                         const Sharer& h, NotificationType type,
                         const std::vector<PageRange>& ranges) {
  Sent sent;
  send_ranges(s, h, type, ranges, {}, &sent);
  keep(p, std::move(sent));
}

void Home::send_ranges(const Segment& s, const Sharer& h, NotificationType type,
                       const std::vector<PageRange>& ranges, Bytes updates, Sent* sent,
                       const fabric::DirectAck& direct_ack) {
  for (size_t at = 0; at < ranges.size() || !updates.empty();) {
    const size_t n = std::min<size_t>(ranges.size() - at, kMaxRanges);
    std::vector<std::byte> buf(kWireSize<InvalidateNotification> + n * PageRangeList::kItem +
                               updates.size());
    Writer out(buf);
    // An InFluxNotification begins alike.
    encode(InvalidateNotification{s.uid, h.instance, static_cast<uint16_t>(n), {}}, out);
    for (size_t i = at; i < at + n; ++i) PageRangeList::put(out, ranges[i]);
    out.bytes(std::exchange(updates, {}));
    send(h.client, s.uid, h.instance, type, std::move(buf), sent, direct_ack);
    at += n;
  }
}

// Where direct acks to the publisher go, if all of these can give him one: each is told by one
// notification.
Bytes Home::receives_from(const ContextId& publisher, const std::vector<Addressee>& to,
                          std::span<std::byte> buf) {
  if (to.size() > fabric::kMostDirectAcks) return {};
  std::array<ContextId, fabric::kMostDirectAcks> givers;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].shared.size() > kMaxRanges / 2) return {};  // updates may split some
    givers[i] = to[i].sharer->client;
  }
  return parts_.server.receives_from(publisher, std::span(givers).first(to.size()), buf);
}

std::shared_ptr<Home::InvalidationRound> Home::publish(Segment& s, const ContextId& except,
                                                       uint32_t instance,
                                                       const std::vector<PageRange>& ranges,
                                                       const std::vector<StoredPage>& stored,
                                                       const Asked& asked) {
  std::shared_ptr<InvalidationRound> p;
  const bool timed = lists_notified_ != 0;
  const auto begin = [&] {
    p = std::make_shared<InvalidationRound>();
    p->by = except;
    if (timed) p->born = now();
    p->done.begin();
  };
  ++s.publications;
  const uint64_t first_notification = next_notification_;
  const bool tells = !mutated("mutate_publish_nobody");
  NewWords words(stored.size());
  Sent sent;
  std::vector<Addressee> to;
  for (auto& h : s.sharers) {
    if (!tells || (h.client == except && h.instance == instance)) continue;
    if (h.token == 0 && (!h.loads() || mutated("mutate_revoked_untold"))) continue;
    std::vector<PageRange> shared = Directory::shared_of(h.regions, ranges);
    if (shared.empty()) continue;
    if (to.empty()) to.reserve(s.sharers.size());
    to.push_back({&h, std::move(shared)});
  }
  if (!to.empty()) {
    begin();
    sent.reserve(to.size());
  }
  std::array<std::byte, fabric::kMaxDirectAckAddress> address;
  fabric::DirectAck direct_ack;
  const bool never_over = fault_point_fails("publication_never_over");
  if (asked.secret != 0 && p != nullptr && !never_over) {
    direct_ack.to = receives_from(except, to, address);
  }
  if (!direct_ack.to.empty()) p->direct_acks = direct_ack.number = asked.number;
  // Each gets a share of the secret: all of them together are the secret, any fewer are noise.
  uint64_t left = asked.secret;
  size_t kept = kept_bytes_;
  for (auto& [h, shared] : to) {
    if (direct_ack.number != 0) {
      direct_ack.share = h == to.back().sharer ? left : secrets_.next();
      left ^= direct_ack.share;
    }
    // Who has no token any more is told no values.
    std::vector<std::byte> updates;
    if (h->token != 0 && kept < kMostKept) updates = updates_for(s, *h, stored, &words, &shared);
    kept += updates.size();
    send_ranges(s, *h, NotificationType::kInvalidate, shared, updates, &sent, direct_ack);
  }
  // All are on their way before anything is noted of them: the publisher waits for the last one.
  if (p != nullptr) keep(p, std::move(sent));
  if (direct_ack.number != 0) {
    p->first_notification = first_notification;
    p->last_notification = next_notification_ - 1;
    received_.push_back(p);
  }
  s.notifications += next_notification_ - first_notification;
  fault_point("publish_told");
  if (never_over) {
    if (p == nullptr) begin();
    ++p->waiting;
  }
  if (p == nullptr && timed) published(except, now());
  return p;
}

// The importer has taken all that it had cached out of use.
void Home::heard(const Notification& revocation) {
  Segment* s = find_uid(revocation.uid);
  if (s == nullptr) return;
  Sharer* h = find_sharer(*s, revocation.client, revocation.instance);
  if (h == nullptr || h->unacknowledged_revocations == 0) return;
  const bool was_shared = s->shared();
  --h->unacknowledged_revocations;
  recount(*s, was_shared);
}

std::map<uint64_t, Home::Notification>::iterator Home::over(
    std::map<uint64_t, Notification>::iterator notification, Finished* done) {
  const auto p = std::move(notification->second.round);
  if (notification->second.type == NotificationType::kInFlux) --lists_notified_;
  if (notification->second.type == NotificationType::kRevoke) heard(notification->second);
  const auto next = drop_notification(notification);
  settle(p, done);
  return next;
}

std::map<uint64_t, Home::Notification>::iterator Home::drop_notification(
    std::map<uint64_t, Notification>::iterator notification) {
  const auto unacknowledged = notifications_of_.find(notification->second.client);
  if (--unacknowledged->second == 0) notifications_of_.erase(unacknowledged);
  kept_bytes_ -= notification->second.payload.size();
  return notifications_.erase(notification);
}

// The publisher has had all direct acks for what these requests did; nobody waits for the answers.
void Home::on_acked_below(const ContextId& client, uint64_t below,
                          std::span<const uint64_t> behind) {
  Finished done;
  {
    Guard g(mu_);
    std::vector<std::shared_ptr<InvalidationRound>> settled;
    std::copy_if(received_.begin(), received_.end(), std::back_inserter(settled), [&](auto& p) {
      return p->by == client && p->direct_acks != InvalidationRound::kNotSettled &&
             (p->direct_acks < below ||
              std::binary_search(behind.begin(), behind.end(), p->direct_acks));
    });
    for (auto& p : settled) {
      p->finished = {};
      auto it = notifications_.lower_bound(p->first_notification);
      while (it != notifications_.end() && it->first <= p->last_notification) it = over(it, &done);
    }
  }
  run(done);
}

void Home::regions_released(const ContextId& client, const ReleasedRegions& m) {
  Segment* s = find_uid(m.uid);
  Sharer* h = s != nullptr ? find_sharer(*s, client, m.instance) : nullptr;
  for (size_t i = 0; h != nullptr && i < m.size(); ++i) {
    const auto [region, epoch] = m.region(i);
    s->directory.drop(h->regions, region, epoch);
  }
}

void Home::on_ack(const ContextId& client, uint64_t number, Reader let_go) {
  Finished done;
  {
    Guard g(mu_);
    // Whatever has become of the notification: its publisher may have said that it is over.
    ReleasedRegions released;
    if (decode(let_go, &released)) regions_released(client, released);
    auto it = notifications_.find(number);
    if (it == notifications_.end() || it->second.client != client) return;
    if (it->second.type == NotificationType::kBreak) on_break_heard(it->second);
    over(it, &done);
  }
  run(done);
}

bool Home::knows(const ContextId& client) {
  Guard g(mu_);
  for (auto& [id, s] : segments_) {
    for (auto& h : s.sharers) {
      if (h.client == client) return true;
    }
  }
  return false;
}

void Home::forget_client(const ContextId& client, Finished* done) {
  for (auto it = notifications_.begin(); it != notifications_.end();) {
    it = it->second.client != client ? std::next(it) : over(it, done);
  }
  for (auto& [id, s] : segments_) {
    forget_sharers(s, [&](const Sharer& h) { return h.client == client; });
    complete_quiesce(s, done);
  }
}

// What a fenced client wrote one-sided and has not announced is at home already: everyone drops
// everything (rule 18).
void Home::forget_content(Segment& s, const ContextId& client, uint32_t instance) {
  for (auto& h : s.sharers) {
    if (h.client != client || (instance != 0 && h.instance != instance) || !h.could_write) continue;
    publish(s, client, h.instance, {{0, static_cast<uint32_t>(s.size / kPageSize)}});
  }
}

void Home::unacknowledged_since(std::map<ContextId, Nanos>* since) {
  Guard g(mu_);
  std::map<ContextId, Nanos> begun;  // of their invalidation rounds under way, the first
  if (lists_notified_ != 0) {
    for (auto& [number, n] : notifications_) {
      if (!n.round->by) continue;
      const Nanos born = n.round->born;
      auto [it, first] = begun.try_emplace(n.round->by, born);
      if (!first) it->second = std::min(it->second, born);
    }
  }
  for (auto& [number, n] : notifications_) {
    if (n.type == NotificationType::kInFlux) {
      auto it = begun.find(n.client);
      if (it != begun.end() && excuses(it->second, n)) continue;
    }
    auto [it, first] = since->try_emplace(n.client, n.due);
    if (!first) it->second = std::min(it->second, n.due);
  }
  // Each holds memory here and is walked through: who owes so many is not waited for.
  for (auto& [client, count] : notifications_of_) {
    if (count >= kMaxNotifications) (*since)[client] = std::numeric_limits<Nanos>::min() / 4;
  }
}

void Home::extend_deadlines() {
  const Nanos t = now();
  Guard g(mu_);
  for (auto& [number, n] : notifications_) {
    n.due = n.progress_at = n.sent = t;
    n.born = t - kAgainSoon;  // so that they are not repeated as rarely as after a long silence
  }
}

Nanos Home::unacknowledged_since(const ContextId& client) {
  std::map<ContextId, Nanos> all;
  unacknowledged_since(&all);
  auto it = all.find(client);
  return it == all.end() ? 0 : it->second;
}

void Home::forget(const ContextId& client, bool goodbye) {
  SignalsBlocked quiet;
  bool had_something = false;
  {
    Guard g(mu_);
    for (auto& [number, n] : notifications_) had_something = had_something || n.client == client;
    for (auto& [id, s] : segments_) {
      for (auto& h : s.sharers) had_something |= h.client == client && h.presented;
    }
    // Should it live on, stopped or behind a cut: the first thing it hears is that all is over, and
    // it drops its pages.
    if (!goodbye) {
      parts_.server.notification(client, next_notification_++,
                                 static_cast<uint16_t>(NotificationType::kGoodbye), kAboutHome,
                                 true);
    }
  }
  // Fenced before anything is decided on its death (rule 19): nothing it sent is applied after
  // this. Who has said goodbye sends nothing more, and is swept instead of remembered, and so is
  // who never had anything of ours.
  if (mutated("mutate_verdict_unfenced")) {
    HomeMutations::keep_keys(*this, client);
  } else {
    parts_.server.fence(client, !goodbye && had_something);
  }
  Finished done;
  auto known =
      std::make_shared<InvalidationRound>();  // who may access a page in flux has heard of it
  known->waiting = 1;
  known->done.begin();
  {
    Guard g(mu_);
    access::NaddrInfo who;
    std::vector<int32_t> segments = imported_by(client, &who);
    if (!segments.empty()) {
      // Only then may the client begin to mend.
      known->finished = [this, who, segments = std::move(segments)] {
        parts_.observer.importer_down(who, segments);
      };
    }
    for (auto& [id, s] : segments_) {
      if (!s.owned) continue;
      lose_intents(s, client, 0, known);
      forget_content(s, client, 0);
    }
    forget_client(client, &done);
    settle(known, &done);
  }
  run(done);
}

bool Home::wait(InvalidationRound& p, Deadline deadline) {
  SpinThenSleep spin(200 * kMicro);
  spin.begin(now(), 10 * kMicro);
  while (!p.done.done()) {
    if (parts_.server.poll() > 0) continue;
    const Nanos t = now();
    if (t >= deadline.at) return false;
    // The service thread takes the answers in, too.
    if (spin.again(t) || parts_.server.poll(true) > 0) continue;
    p.done.nap(std::min(kMilli, deadline.at - t));
  }
  return true;
}

void Home::tick(Nanos t) {
  Finished done;
  {
    Guard g(mu_);
    for (auto& [number, n] : notifications_) {
      // What lies unread in a stopped importer's queue is not helped by copies.
      if (t - n.sent > std::max(kResend, n.sent - n.born)) {
        n.sent = t;
        parts_.watch.look();  // an answer is overdue
        parts_.server.notification(n.client, number, static_cast<uint16_t>(n.type), n.payload);
      }
    }
    // Stores that no barrier published (rule 11's counterpart at home).
    for (auto& [id, s] : segments_) {
      if (mutated("mutate_timer_takes_nothing")) break;
      // While many are under way somebody is slow; what is written meanwhile goes with the next.
      if (s.owned && s.shared() && scans_.size() < kMaxTimerScans) scan_and_publish(s);
      if (!s.owned && say_seen(s)) send_stored(s);  // what does not fit goes with the next
    }
    remind_owners(t, &done);
    if (unseen_lists_) {
      unseen_lists_ = false;
      for (auto& [id, s] : segments_) remind_watchers(s, t, &done);
    }
  }
  run(done);
}

bool Home::busy() {
  Guard g(mu_);
  return !notifications_.empty() || shared_segments_.load() != 0 || unseen_lists_ ||
         !pending_detaches_.empty();
}

}  // namespace cmi::memory
