// See reply_cache.hpp.
#include "fabric/reply_cache.hpp"

#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "fabric/request_window.hpp"

namespace cmi::fabric {

namespace {
constexpr size_t kLargeAnswer = 256;      // bytes
constexpr size_t kMostLargeAnswers = 64;  // kept for each client
// More than a Link has under way, so that a client that follows the rules never meets these limits.
constexpr size_t kMostAnswers = 2 * RequestWindow::kMostUnderWay;
constexpr size_t kMostOpen = 2 * RequestWindow::kMostUnderWay;
}  // namespace

ReplyCache::Verdict ReplyCache::admit(uint64_t number) {
  if (number < acked_below_) return Verdict::kOver;
  if (!mutated("mutate_repeat_executed")) {
    if (std::find(open_.begin(), open_.end(), number) != open_.end()) return Verdict::kUnderWay;
    if (answers_.contains(number)) return Verdict::kAnswered;
  }
  if (number <= forgotten_to_) return Verdict::kForgotten;
  if (open_.size() >= kMostOpen) return Verdict::kTooMany;
  open_.push_back(number);
  return Verdict::kExecute;
}

Bytes ReplyCache::answer(uint64_t number) const {
  const auto it = answers_.find(number);
  return it == answers_.end() ? Bytes() : Bytes(it->second);
}

bool ReplyCache::finish(uint64_t number) { return std::erase(open_, number) != 0; }

void ReplyCache::keep(uint64_t number, Bytes answer) {
  answers_.erase(answers_.begin(), answers_.lower_bound(acked_below_));
  answers_[number].assign(answer.begin(), answer.end());
  answered_.push_back(number);
  while (!answered_.empty() &&
         (answered_.front() < acked_below_ || answered_.size() > kMostAnswers)) {
    drop_oldest();
  }
  if (answer.size() <= kLargeAnswer) return;
  // One old request without an answer keeps the client from acknowledging all later ones, so large
  // answers have a limit of their own. A client that asks again for one that was dropped has it
  // executed again: what large answers tell is only read.
  large_.push_back(number);
  if (large_.size() <= kMostLargeAnswers) return;
  answers_.erase(large_.front());
  large_.pop_front();
}

void ReplyCache::drop_oldest() {
  if (answers_.erase(answered_.front()) > 0) {
    forgotten_to_ = std::max(forgotten_to_, answered_.front());
  }
  answered_.pop_front();
}

bool ReplyCache::acknowledge(uint64_t number) {
  if (number <= acked_below_) return false;
  acked_below_ = number;
  return std::erase_if(open_, [&](uint64_t n) { return n < number; }) > 0;
}

void ReplyCache::clear() {
  open_.clear();
  answers_.clear();
  answered_.clear();
  large_.clear();
}

}  // namespace cmi::fabric
