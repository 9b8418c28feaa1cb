// The notifications of a home that importers have not acknowledged, by number, in the order in
// which they were sent. Each importer's share is counted, and the bytes of all; an importer's time
// to answer begins when the notification is sent, and again with what extends its deadline. An
// importer that has answered something since is alive, so its time begins anew with that, within
// bounds.
//
// A list of pages in flux is answered once what was stored to its pages is at home, and that may
// wait for other importers: meanwhile its receiver owes nothing. But a receiver that makes no
// progress is not waited for without end.
//
// Pure: the time is given by the caller. HomeCore::mu guards it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "core/base/answer_time.hpp"
#include "core/memory/home/outbox.hpp"
#include "core/memory/wire/notifications.hpp"

namespace cmi::memory {

// That one importer has not acknowledged, with the rounds that wait to notify it.
inline constexpr size_t kMaxNotifications = 65536;

struct Notification {
  ContextId client;
  NotificationType type{};
  uint64_t uid = 0;  // of the segment, and which import of it
  uint32_t instance = 0;
  bool direct = false;       // asks for a direct ack, when it is sent first
  NamedPages named;          // of kInvalidate
  bool repeated = false;     // or else the time of its answer is not known
  uint32_t break_round = 0;  // of kBreak: Break::round of what it says
  std::vector<std::byte> payload;
  RoundPtr round;  // that waits for the answer
  Nanos born = 0, sent = 0;
  Nanos due = 0;          // since when its answer is awaited
  Nanos progress_at = 0;  // of a list: when its receiver has made progress towards its answer last
  SharerKey to() const { return {client, uid, instance}; }
};

class NotificationTable {
 public:
  static constexpr int kDeadlineExtension = 3;  // times as long as a peer may owe an answer

  // Numbers ascend; none is given twice.
  uint64_t new_number() { return next_++; }
  uint64_t next_number() const { return next_; }

  // Keeps what was sent under this number at `t` until take(); the round waits for it. True: its
  // receiver has just reached kMaxNotifications.
  bool keep(uint64_t number, Notification notification, Nanos t);
  // A round waits to notify the importer, to which something is under way (Outbox). True: as above.
  bool begin_wait(const ContextId& client);
  void end_wait(const ContextId& client, size_t rounds);  // so many do not wait any more
  const Notification* find(uint64_t number) const;
  // The notification, which must be in the table, leaves it. The caller settles its round.
  Notification take(uint64_t number);
  // The importer itself has acknowledged the notification, which must be in the table.
  void answered(uint64_t number, Nanos t);
  // What was known of how long the importer takes to answer is no longer so.
  void new_session(const ContextId& client);
  // The importer has no imports any more: what is known of it goes with its last notification.
  void forget(const ContextId& client);
  // The lowest number from this one on that is in the table; 0: there is none.
  uint64_t first_from(uint64_t number) const;
  template <class Predicate>
  std::vector<uint64_t> matching(Predicate which) const {
    std::vector<uint64_t> numbers;
    for (const auto& [number, n] : notifications_) {
      if (which(n)) numbers.push_back(number);
    }
    return numbers;
  }
  template <class Visit>
  void for_each(Visit visit) const {
    for (const auto& [number, n] : notifications_) visit(n);
  }
  bool empty() const { return notifications_.empty(); }
  size_t kept_bytes() const { return kept_bytes_; }  // of the payloads
  bool has_lists() const { return lists_ != 0; }     // of pages in flux

  // A round of this importer, begun then, is over: the time to answer lists begins anew with the
  // end of each round that kept it from answering. `dead_after`: how long a peer may owe an answer.
  void round_over(const ContextId& by, Nanos begun, Nanos t, Nanos dead_after);
  // An importer that is to answer a list has made progress.
  void made_progress(const ContextId& client, Nanos t);
  // Since when importers owe answers; kOwesTooMany for one that owes kMaxNotifications.
  void unacknowledged_since(std::map<ContextId, Nanos>* since, Nanos dead_after) const;
  static constexpr Nanos kOwesTooMany = INT64_MIN / 4;
  // All answers are due from now on: this side could not ask before.
  void extend_deadlines(Nanos t);
  // Sends notifications again: send(number, notification). Those that their receiver, by its
  // AnswerTime, should have answered by now.
  template <class Send>
  void resend(Nanos t, Send send) {
    std::vector<Importer*> late;
    for (auto& [number, n] : notifications_) {
      Importer& importer = importers_.at(n.client);
      if (t - n.sent <= patience(n, importer)) continue;
      if (n.repeated || !n.direct) late.push_back(&importer);
      n.sent = t;
      n.repeated = true;
      send(number, std::as_const(n));
    }
    for (Importer* importer : late) importer->answer_time.repeated(t);
  }

 private:
  struct Importer {
    size_t unacknowledged = 0;  // and rounds that wait
    Nanos answered_at = 0;      // when it has acknowledged something last; 0: not yet
    bool gone = false;
    AnswerTime answer_time;
  };
  // Copies do not help an importer that is stopped and leaves its queue unread: one that is not
  // heard of is sent them ever more rarely. Of a direct ack the home hears by others, and the
  // publisher waits: that it was late once is no reason to ask later.
  static Nanos patience(const Notification& n, const Importer& importer) {
    const bool first = n.direct && !n.repeated;
    const Nanos wait = first ? importer.answer_time.measured() : importer.answer_time.wait();
    return std::min(std::max(wait, n.sent - n.born), AnswerTime::kMost);
  }
  // Whether a round of its receiver that was begun then keeps it from answering a list.
  static bool extends_deadline(Nanos begun, const Notification& list, Nanos dead_after) {
    return begun < list.progress_at + kDeadlineExtension * dead_after;
  }
  std::map<ContextId, Nanos> first_rounds() const;

  std::map<uint64_t, Notification> notifications_;
  std::map<ContextId, Importer> importers_;
  size_t kept_bytes_ = 0;
  size_t lists_ = 0;
  uint64_t next_ = 1;
};

}  // namespace cmi::memory
