// Invalidation rounds: importers that may have copies of pages are notified to drop them, and the
// publisher is answered when all have, or are fenced as dead. And the other notifications that a
// home sends and waits for.
//
// Functions that take `done` collect there what finished: the caller runs it without the lock.
// HomeCore::mu guards it. Files: rounds.cpp (sending), round_answers.cpp.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/liveness/peer_watch.hpp"
#include "core/memory/home/notification_table.hpp"
#include "core/memory/home/outbox.hpp"
#include "core/memory/home/segment_table.hpp"
#include "core/memory/home/shared_segments.hpp"
#include "core/memory/home/subscriptions.hpp"
#include "fabric/server.hpp"

namespace cmi::memory {

class InvalidationRounds {
 public:
  InvalidationRounds(SegmentTable& segments, SharedSegments& shared, fabric::Server& server,
                     liveness::PeerWatch& watch)
      : segments_(segments), shared_(shared), server_(server), watch_(watch) {}

  // By which request, if its sender takes direct acks from those that are notified.
  struct Asked {
    uint64_t number, secret;  // secret 0: it does not
  };
  // Notifies all sharers but `except` that may have pages of these ranges, some of them once they
  // have answered what was sent to them before (Outbox). Null: none may, and it is over. Else the
  // caller may set `finished` before it releases the lock. `stored`: of pages that somebody
  // subscribes to, what of them is new.
  RoundPtr publish(Segment& s, const ContextId& except, uint32_t instance,
                   const std::vector<PageRange>& ranges, const std::vector<StoredPage>& stored = {},
                   const Asked& asked = {});
  // The same of what processes of this node have stored; barriers wait for these rounds.
  RoundPtr publish_stores(Segment& s, const std::vector<PageRange>& ranges);
  RoundPtr publish_stores(Segment& s, const std::vector<PageRange>& ranges,
                          const std::vector<StoredPage>& stored);
  // A scan in parts has begun that will publish: a round that ends when its publication, if there
  // is one, is over. Barriers wait for it.
  RoundPtr begin_stores();
  // The scan is over; null: nothing was to be published.
  void end_stores(const RoundPtr& scan, const RoundPtr& published, Finished* done);
  // Those that are not over: a barrier that finds nothing written because another one was faster
  // waits for that one's (rule 15).
  const std::vector<RoundPtr>& of_stores() const { return stores_; }
  // `then` runs when all of these are over.
  void after_stores(std::function<void()> then, Finished* done);

  void notify(const RoundPtr& p, const Segment& s, const Sharer& h, NotificationType type,
              Bytes payload) {
    notify(p, h.client, s.uid, h.instance, type, payload);
  }
  void notify(const RoundPtr& p, const ContextId& client, uint64_t uid, uint32_t instance,
              NotificationType type, Bytes payload);
  void notify_break(const RoundPtr& p, const Segment& s, const Sharer& h,
                    const BreakNotification& m);
  void notify_ranges(const RoundPtr& p, const Segment& s, const Sharer& h, NotificationType type,
                     const std::vector<PageRange>& ranges);
  // One thing less that the round waits for.
  void settle(const RoundPtr& p, Finished* done);

  // What these dirty intents stood for has been published.
  void clear_intents(Segment& s, Sharer& h, const std::vector<DirtyIntent>& intents);
  // The client's end: its publisher may have had all its direct acks and have gone on, of which we
  // have not heard. What it published is home, and known to all when they have acknowledged it,
  // which `p` waits for. `instance`: 0: all its imports of the segment.
  void close_received(const Segment& s, const ContextId& client, uint32_t instance,
                      const RoundPtr& p);

  // An importer has acknowledged a notification; it stays in the table where it is another's.
  void acknowledged(const ContextId& client, uint64_t number, Finished* done);
  // A publisher has had all direct acks for what it asked for below this number, and by those
  // behind it; nobody waits for the answers.
  void acked_below(const ContextId& client, uint64_t below, std::span<const uint64_t> behind,
                   Finished* done);
  // No answer of this client, or to notifications of this import, is awaited any more, and nothing
  // waits for it.
  void forget(const ContextId& client, Finished* done);
  void forget(const SharerKey& gone, Finished* done);
  // The client begins a new session. From now on its report that direct acks have answered a
  // request of the old one is not believed: it may have given that request up.
  void new_session(const ContextId& client);
  // Rounds that wait for an answer, and for whose end a request or a call waits.
  std::vector<RoundPtr> unanswered() const;
  // Whether a round is not over that makes this user of the segment known as gone, or that
  // publishes what it has stored (rule 31).
  bool keeps_from_gone(uint64_t uid, uint64_t holder) const;
  void resend(Nanos t);  // what is overdue

  NotificationTable& table() { return table_; }

 private:
  // Sending in two steps: what was sent is kept, by number, until it is answered; no answer is
  // taken in before that, since that takes the home's lock.
  using Sent = std::vector<std::pair<uint64_t, Notification>>;
  struct Addressee {
    Sharer* sharer;
    std::vector<PageRange> shared;
  };
  std::vector<Addressee> addressees(Segment& s, const ContextId& except, uint32_t instance,
                                    const std::vector<PageRange>& ranges);
  bool let_wait(const Segment& s, std::vector<Addressee>* to, const RoundPtr& p);
  void send_waiting(Outbox::Waiting waiting);
  // Takes out the pages that the sharer is known not to have by now.
  void keep_shared(Outbox::Waiting* waiting) const;
  void end_waits(const ContextId& client, const std::vector<RoundPtr>& rounds, Finished* done);
  Bytes direct_ack_address(const ContextId& publisher, const std::vector<Addressee>& to,
                           std::span<std::byte> buf);
  Sent send_all(Segment& s, std::vector<Addressee>& to, const std::vector<StoredPage>& stored,
                fabric::DirectAck direct_ack, uint64_t secret);
  void send(const ContextId& client, uint64_t uid, uint32_t instance, NotificationType type,
            std::vector<std::byte> payload, Sent* sent, const fabric::DirectAck& direct_ack = {});
  void send_ranges(const SharerKey& to, NotificationType type, const std::vector<PageRange>& ranges,
                   Bytes updates, Sent* sent, const fabric::DirectAck& direct_ack = {});
  void keep(const RoundPtr& p, Sent sent);
  void over(uint64_t number, Finished* done);
  template <class Visit>
  void each_open(Visit visit) const;  // the same one several times
  template <class Predicate>
  void over_if(Predicate which, Finished* done) {
    for (uint64_t number : table_.matching(which)) over(number, done);
  }
  void clear_intents(InvalidationRound& p);
  void on_revocation_heard(const Notification& revocation);
  void on_break_heard(const Notification& n);

  SegmentTable& segments_;
  SharedSegments& shared_;
  fabric::Server& server_;
  liveness::PeerWatch& watch_;
  NotificationTable table_;
  Outbox outbox_;
  std::vector<RoundPtr> stores_;
  // Rounds of requests that direct acks answer. Each is over when the publisher reports that it has
  // all direct acks, or when all sharers have acknowledged here.
  std::vector<RoundPtr> received_;
  Secrets secrets_;
};

}  // namespace cmi::memory
