// A Link's requests without an answer: which have been sent on the present session, which wait
// because too many are under way, and which are asked for again.
//
// Invariants:
//  1. Requests are in the order of their numbers, and each number is given once.
//  2. Those up to the last sent one have been sent on the present session; all behind have not.
//  3. Nothing is sent for the first time while allowed() or more are sent and have no answer.
//  4. Before the home's first answer on a session, or after the link was idle, kAtFirst at most are
//     under way: what an answer says of the home's room holds while there is something to answer.
//
// It sends nothing itself: it says what is to be sent, in order. Pure. Link::mu_ guards it, because
// the session and what has been sent on it change together; pending() and allowed() alone are for
// any thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/answer_time.hpp"
#include "core/base/clock.hpp"
#include "core/base/fault_point.hpp"
#include "fabric/request.hpp"

namespace cmi::fabric {

class RequestWindow {
 public:
  // Half of what a server takes.
  static constexpr size_t kMostUnderWay = 8192;
  // Before the first answer: many links may begin at the same time, and no answer has told any of
  // them yet that the home is behind.
  static constexpr size_t kAtFirst = 16;
  // Without requests for so long, a link begins like this again. A home that is behind stays so for
  // as long (Intake::kStays).
  static constexpr Nanos kIdle = 100 * kMilli;
  static constexpr Nanos kAskAgain = 50 * kMilli;

  void add(std::shared_ptr<Request> request, Nanos t);   // begun at `t`; gives it its number
  std::shared_ptr<Request> find(uint64_t number) const;  // null: answered earlier, or forgotten
  std::shared_ptr<Request> take(uint64_t number);        // the same, and it is pending no more
  std::deque<std::shared_ptr<Request>> take_all();
  std::vector<std::shared_ptr<Request>> take_begun_by(Nanos t);  // by then, `t` included

  // Nothing has been sent on the present session, whose home has said nothing of a credit.
  void restart();
  // What was sent on this session may not have arrived, and is to be sent before all else.
  void send_again();
  // The home has told the credit: how many may be under way; 0: no bound of its own.
  void allow(uint64_t credit);
  size_t allowed() const { return allowed_.load(std::memory_order_relaxed); }
  // The next request to be sent for the first time on this session; null: none, or as many are
  // under way as may be. It counts as sent at `t`.
  Request* next_to_send(Nanos t);
  // How many requests have come to wait for the home's credit since the last call.
  uint64_t take_held_back() { return std::exchange(held_back_, 0); }
  // The requests to be asked for again: the oldest, and some of those behind it, in turn, since
  // replies to these may be lost as well. None before answer_wait() has passed since `since`, since
  // the oldest was sent, and since the last time. They count as sent at `t`, and repeated.
  std::vector<Request*> to_ask_again(Nanos since, Nanos t);

  // The answer to `r`, which has been taken out, came at `t`: the home's, or all its direct acks.
  void answered(const Request& r, Nanos t) {
    if (at_first_) allow(0);  // no credit came with it
    answered_at_ = t;
    if (!r.repeated_) answer_time_.sample(t - r.sent_at_);
  }
  // How long an answer is awaited before it is asked for again; kAskAgain at least.
  Nanos answer_wait() const {
    return fault_point_fails("answer_time_unknown") ? kAskAgain : answer_time_.wait();
  }

  bool empty() const { return requests_.empty(); }
  bool has_unsent() const { return !empty() && requests_.back()->number_ > sent_to_; }
  // The sender has the answers of all numbers below this one.
  uint64_t answered_below() const { return empty() ? next_number_ : requests_.front()->number_; }
  // When the first request came after there was none: a session that was idle owes nothing before.
  Nanos unacknowledged_since() const { return unacknowledged_since_; }
  size_t pending() const { return count_.load(std::memory_order_relaxed); }
  template <class F>
  void each(F f) {
    for (auto& r : requests_) f(*r);
  }

 private:
  using Requests = std::deque<std::shared_ptr<Request>>;
  Requests::iterator behind(uint64_t number);  // the first one with a higher number
  Requests::const_iterator at(uint64_t number) const;
  void counted() { count_.store(requests_.size(), std::memory_order_relaxed); }
  void begin_anew();

  Requests requests_;
  uint64_t next_number_ = 1;
  std::atomic<size_t> allowed_{kAtFirst};
  bool at_first_ = true;   // no answer has come since the session, or the link, began anew
  Nanos answered_at_ = 0;  // the last one
  uint64_t held_to_ = 0;   // the last number that has waited for credit
  uint64_t held_back_ = 0;
  uint64_t sent_to_ = 0;   // the last number that was sent on this session
  uint64_t asked_to_ = 0;  // the last number behind the oldest that was considered for a repeat
  Nanos asked_at_ = 0;     // when the oldest was last asked for again
  Nanos unacknowledged_since_ = 0;
  AnswerTime answer_time_{kAskAgain};
  std::atomic<size_t> count_{0};
};

}  // namespace cmi::fabric
