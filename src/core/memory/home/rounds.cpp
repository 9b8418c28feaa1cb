#include "core/memory/home/rounds.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"

namespace cmi::memory {

namespace {
// Of notifications without an answer, from which on none takes updates along: they are kept until
// then.
constexpr size_t kMostKept = size_t{1} << 20;

// Of a publisher to what it has changed itself: it would take in no further update of the epoch.
void end_subscriptions(Sharer& h, const std::vector<PageRange>& ranges) {
  for (const PageRange& r : ranges) {
    for (uint32_t i = 0; i < std::min(r.count, kSubscriptionSlots); ++i) {
      SharerSubscriptions::Slot* const slot = h.subscriptions.find(r.first + i);
      if (slot != nullptr) slot->number = kSubscribeFor;
    }
  }
}

SharerKey key_of(const Segment& s, const Sharer& h) { return {h.client, s.uid, h.instance}; }
}  // namespace

void InvalidationRounds::notify(const RoundPtr& p, const ContextId& client, uint64_t uid,
                                uint32_t instance, NotificationType type, Bytes payload) {
  Sent sent;
  send(client, uid, instance, type, {payload.begin(), payload.end()}, &sent);
  keep(p, std::move(sent));
}

void InvalidationRounds::notify_break(const RoundPtr& p, const Segment& s, const Sharer& h,
                                      const BreakNotification& m) {
  const Encoded encoded(m);
  const Bytes payload = encoded;
  Sent sent;
  send(h.client, s.uid, h.instance, NotificationType::kBreak, {payload.begin(), payload.end()},
       &sent);
  sent.back().second.break_round = m.brk.round;
  keep(p, std::move(sent));
}

void InvalidationRounds::notify_ranges(const RoundPtr& p, const Segment& s, const Sharer& h,
                                       NotificationType type,
                                       const std::vector<PageRange>& ranges) {
  // Beside a list of pages in flux nothing waits: its receiver may have to have published first.
  if (type == NotificationType::kInFlux) {
    for (auto& waiting : outbox_.take_all()) {
      table_.end_wait(waiting.to.client, waiting.rounds.size());
      send_waiting(std::move(waiting));
    }
  }
  Sent sent;
  send_ranges(key_of(s, h), type, ranges, {}, &sent);
  keep(p, std::move(sent));
}

void InvalidationRounds::send(const ContextId& client, uint64_t uid, uint32_t instance,
                              NotificationType type, std::vector<std::byte> payload, Sent* sent,
                              const fabric::DirectAck& direct_ack) {
  const uint64_t number = table_.new_number();
  server_.notification(client, number, static_cast<uint16_t>(type), payload, false, direct_ack);
  Notification n;
  n.client = client;
  n.type = type;
  n.uid = uid;
  n.instance = instance;
  n.direct = direct_ack.number != 0;
  n.payload = std::move(payload);
  sent->emplace_back(number, std::move(n));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): its items are moved on
void InvalidationRounds::keep(const RoundPtr& p, Sent sent) {
  const Nanos t = now();
  for (auto& [number, n] : sent) {
    n.round = p;
    if (n.type == NotificationType::kInvalidate) outbox_.sent(n.to(), n.direct, n.named);
    if (table_.keep(number, std::move(n), t)) watch_.look();  // its receiver does not read them
  }
}

void InvalidationRounds::send_ranges(const SharerKey& to, NotificationType type,
                                     const std::vector<PageRange>& ranges, Bytes updates,
                                     Sent* sent, const fabric::DirectAck& direct_ack) {
  for (size_t at = 0; at < ranges.size() || !updates.empty();) {
    const size_t n = std::min<size_t>(ranges.size() - at, kMaxRanges);
    std::vector<std::byte> buf(kWireSize<InvalidateNotification> + n * PageRangeList::kItem +
                               updates.size());
    Writer out(buf);
    // An InFluxNotification begins alike.
    encode(InvalidateNotification{to.uid, to.instance, static_cast<uint16_t>(n), {}}, out);
    for (size_t i = at; i < at + n; ++i) PageRangeList::put(out, ranges[i]);
    out.bytes(std::exchange(updates, {}));
    send(to.client, to.uid, to.instance, type, std::move(buf), sent, direct_ack);
    sent->back().second.named = NamedPages(std::span(ranges).subspan(at, n));
    at += n;
  }
}

// All that waits for one sharer goes out, in a round of its own: those that have waited are over no
// sooner. As plain ranges: what an update would hold may have changed since.
void InvalidationRounds::send_waiting(Outbox::Waiting waiting) {
  const auto p = std::make_shared<InvalidationRound>();
  p->done.begin();
  p->then = std::move(waiting.rounds);
  Sent sent;
  send_ranges(waiting.to, NotificationType::kInvalidate, waiting.pages.all(), {}, &sent);
  const SegmentPtr s = segments_.find_uid(waiting.to.uid);
  if (s != nullptr) s->counts.notifications += sent.size();
  keep(p, std::move(sent));
}

std::vector<InvalidationRounds::Addressee> InvalidationRounds::addressees(
    Segment& s, const ContextId& except, uint32_t instance, const std::vector<PageRange>& ranges) {
  std::vector<Addressee> to;
  if (mutated("mutate_publish_nobody")) return to;
  Sharer* const publisher = s.sharers.find(except, instance);
  if (publisher != nullptr) end_subscriptions(*publisher, ranges);
  // Most publications concern nobody: then not each sharer is looked at.
  if (!s.directory.any_but(publisher == nullptr ? nullptr : &publisher->regions, ranges)) return to;
  for (auto& h : s.sharers) {
    if (&h == publisher) continue;
    if (h.token == 0 && (!h.loads() || mutated("mutate_revoked_not_notified"))) continue;
    std::vector<PageRange> shared = h.regions.of(ranges);
    if (shared.empty()) continue;
    if (to.empty()) to.reserve(s.sharers.size());
    to.push_back({&h, std::move(shared)});
  }
  return to;
}

// Takes out of *to those that have not answered what was sent to them before: their pages wait.
// False: direct acks must not be asked for, since not all are notified now; or, where stores of
// many may meet, since others have publications under way, and the home has to hear soon when that
// ends.
bool InvalidationRounds::let_wait(const Segment& s, std::vector<Addressee>* to, const RoundPtr& p) {
  if (table_.has_lists()) return true;
  const size_t sharers = s.sharers.size(), limit = Outbox::limit(sharers);
  bool direct = true;
  std::erase_if(*to, [&](const Addressee& a) {
    const SharerKey key = key_of(s, *a.sharer);
    if (sharers > Outbox::kFewSharers && !outbox_.idle(key)) direct = false;
    if (!outbox_.must_wait(key, limit, a.shared)) return false;
    outbox_.add(key, limit, a.shared, p);
    if (table_.begin_wait(key.client)) watch_.look();  // its receiver does not read them
    direct = false;
    return true;
  });
  return direct;
}

// Where direct acks to the publisher go, if all of these can give it one: each is notified by one
// message.
Bytes InvalidationRounds::direct_ack_address(const ContextId& publisher,
                                             const std::vector<Addressee>& to,
                                             std::span<std::byte> buf) {
  if (to.size() > fabric::kMostDirectAcks) return {};
  std::array<ContextId, fabric::kMostDirectAcks> givers;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].shared.size() > kMaxRanges / 2) return {};  // updates may split some
    givers[i] = to[i].sharer->client;
  }
  return server_.direct_ack_address(publisher, std::span(givers).first(to.size()), buf);
}

// Each gets a share of the secret: all of them together are the secret, any fewer are noise.
InvalidationRounds::Sent InvalidationRounds::send_all(Segment& s, std::vector<Addressee>& to,
                                                      const std::vector<StoredPage>& stored,
                                                      fabric::DirectAck direct_ack,
                                                      uint64_t secret) {
  NewWords words(stored.size());
  Sent sent;
  sent.reserve(to.size());
  uint64_t left = secret;
  size_t kept = table_.kept_bytes();
  for (auto& [h, shared] : to) {
    if (direct_ack.number != 0) {
      direct_ack.token = h == to.back().sharer ? left : secrets_.next();
      left ^= direct_ack.token;
    }
    // A sharer that has no token any more is sent no values.
    std::vector<std::byte> updates;
    if (h->token != 0 && kept < kMostKept) updates = updates_for(s, *h, stored, &words, &shared);
    kept += updates.size();
    send_ranges(key_of(s, *h), NotificationType::kInvalidate, shared, updates, &sent, direct_ack);
  }
  return sent;
}

RoundPtr InvalidationRounds::publish(Segment& s, const ContextId& except, uint32_t instance,
                                     const std::vector<PageRange>& ranges,
                                     const std::vector<StoredPage>& stored, const Asked& asked) {
  const bool timed = table_.has_lists();
  const bool never_over = fault_point_fails("round_never_over");
  ++s.counts.publications;
  const uint64_t first_notification = table_.next_number();
  std::vector<Addressee> to = addressees(s, except, instance, ranges);
  s.writers.count_publication(ranges, except);
  for (const Addressee& a : to) s.writers.count_notice(a.shared);
  RoundPtr p;
  if (!to.empty() || never_over) {
    p = std::make_shared<InvalidationRound>();
    p->by = except;
    if (timed) p->born = now();
    p->done.begin();
  }
  std::array<std::byte, fabric::kMaxDirectAckAddress> address;
  fabric::DirectAck direct_ack;
  const bool direct = let_wait(s, &to, p);
  if (direct && asked.secret != 0 && !to.empty() && !never_over) {
    direct_ack.to = direct_ack_address(except, to, address);
  }
  if (!direct_ack.to.empty()) p->direct_acks = direct_ack.number = asked.number;
  // All are on their way before anything is noted of them: the publisher waits for the last one.
  Sent sent = send_all(s, to, stored, direct_ack, asked.secret);
  if (p != nullptr) keep(p, std::move(sent));
  if (direct_ack.number != 0) {
    p->first_notification = first_notification;
    p->last_notification = table_.next_number() - 1;
    received_.push_back(p);
  }
  s.counts.notifications += table_.next_number() - first_notification;
  fault_point("publish_notified");
  if (never_over) ++p->waiting;
  if (p == nullptr && timed) {
    const Nanos t = now();
    table_.round_over(except, t, t, watch_.dead_after());
  }
  return p;
}

RoundPtr InvalidationRounds::publish_stores(Segment& s, const std::vector<PageRange>& ranges) {
  return publish_stores(s, ranges, whole_pages(s, ranges));
}

RoundPtr InvalidationRounds::publish_stores(Segment& s, const std::vector<PageRange>& ranges,
                                            const std::vector<StoredPage>& stored) {
  auto p = publish(s, ContextId{}, 0, ranges, stored);
  if (p != nullptr) stores_.push_back(p);  // somebody has yet to answer
  return p;
}

RoundPtr InvalidationRounds::begin_stores() { return stores_.emplace_back(begin_round()); }

void InvalidationRounds::end_stores(const RoundPtr& scan, const RoundPtr& published,
                                    Finished* done) {
  if (published == nullptr) return settle(scan, done);
  published->then.push_back(scan);
}

}  // namespace cmi::memory
