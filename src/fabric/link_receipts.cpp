// A Link's requests that end with direct acks (protocol rule 26), and what the home is told of
// them.
#include <algorithm>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "fabric/link.hpp"

namespace cmi::fabric {

namespace {
// Receipts come as fast as an answer or not at all. What the home then says comes when it has asked
// again, and for how long none are asked for.
constexpr Nanos kReceiptsLate = 10 * kMilli, kWithoutReceipts = kSecond,
                kLongestWithoutReceipts = 64 * kSecond;
}  // namespace

// The home has asked for them, and answers all the same.
void Link::receipts_missed_locked(const Request& r, Nanos t) {
  if (r.secret_ == 0 || t - r.begun_at_ <= kReceiptsLate || r.begun_at_ < receipts_from_) return;
  without_ = std::clamp(2 * without_, kWithoutReceipts, kLongestWithoutReceipts);
  receipts_from_ = t + without_;
}

uint64_t Link::settled_locked() const {
  return std::min(pending_.empty() ? next_number_ : pending_.front()->number_, unsettled_);
}

// A share that is none keeps the others from being all: the home's answer is waited for then. One
// that comes twice counts once: send buffers may.
void Link::received(Session& s, const Frame& f) {
  std::shared_ptr<Request> r;
  {
    Guard g(mu_);
    if (current_.get() != &s) return;
    const auto it = find_locked(f.number);
    if (it == pending_.end() || (*it)->secret_ == 0 || !(*it)->take_share(f.secret)) return;
    if ((*it)->missing_ != 0 && !mutated("mutate_one_receipt_suffices")) return;
    r = take_locked(f.number);
    received_.push_back(f.number);
    without_ = 0;
    // The home has told them, so it is there.
    const Nanos t = now();
    s.heard_.store(t, std::memory_order_relaxed);
    heard_.store(t, std::memory_order_relaxed);
    if (!r->repeated_) took_.store(t - r->sent_at_, std::memory_order_relaxed);
    if (!pending_.empty() && pending_.back()->number_ > sent_to_) send_more_locked(s, t);
  }
  fault_point("link_received_before_answer");
  answer(*r, kReceived);
}

bool Link::report_acked_below() {
  Guard g(mu_);
  if (received_.empty() || current_ == nullptr || !current_->up_.load(std::memory_order_acquire)) {
    return false;
  }
  const uint64_t settled = settled_locked();
  std::erase_if(received_, [&](uint64_t number) { return number < settled; });
  const size_t n = std::min(received_.size(), kMostSettled);
  Session& s = *current_;
  s.port_->send(s.home_, {FrameKind::kSettled, 0, s.secret_, 0, settled,
                          std::as_bytes(std::span(received_).first(n))});
  received_.erase(received_.begin(), received_.begin() + static_cast<ptrdiff_t>(n));
  return true;
}

}  // namespace cmi::fabric
