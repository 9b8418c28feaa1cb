// See request_window.hpp.
#include "fabric/request_window.hpp"

#include <algorithm>

#include "core/base/mutation.hpp"

namespace cmi::fabric {

namespace {
// Of the requests behind the oldest, each time.
constexpr size_t kMostAskedAgain = 16, kMostBytesAskedAgain = size_t{64} << 10;
}  // namespace

void RequestWindow::add(std::shared_ptr<Request> request, Nanos t) {
  request->number_ = next_number_++;
  request->begun_at_ = t;
  if (requests_.empty() && t - answered_at_ > kIdle) begin_anew();
  requests_.push_back(std::move(request));
  counted();
  if (requests_.size() == 1) unacknowledged_since_ = t;
}

RequestWindow::Requests::iterator RequestWindow::behind(uint64_t number) {
  return std::upper_bound(
      requests_.begin(), requests_.end(), number,
      [](uint64_t n, const std::shared_ptr<Request>& r) { return n < r->number_; });
}

RequestWindow::Requests::const_iterator RequestWindow::at(uint64_t number) const {
  const auto it = std::lower_bound(
      requests_.begin(), requests_.end(), number,
      [](const std::shared_ptr<Request>& r, uint64_t n) { return r->number_ < n; });
  return it != requests_.end() && (*it)->number_ == number ? it : requests_.end();
}

std::shared_ptr<Request> RequestWindow::find(uint64_t number) const {
  const auto it = at(number);
  return it == requests_.end() ? nullptr : *it;
}

std::shared_ptr<Request> RequestWindow::take(uint64_t number) {
  const auto it = at(number);
  if (it == requests_.end()) return nullptr;
  auto request = *it;
  requests_.erase(it);
  counted();
  return request;
}

std::deque<std::shared_ptr<Request>> RequestWindow::take_all() {
  Requests all;
  all.swap(requests_);
  counted();
  return all;
}

std::vector<std::shared_ptr<Request>> RequestWindow::take_begun_by(Nanos t) {
  std::vector<std::shared_ptr<Request>> taken;
  std::erase_if(requests_, [&](auto& r) {
    if (r->begun_at_ > t) return false;
    taken.push_back(r);
    return true;
  });
  counted();
  return taken;
}

void RequestWindow::restart() {
  sent_to_ = 0;
  allowed_.store(kMostUnderWay, std::memory_order_relaxed);
  begin_anew();
}

// Less room than that, told before, stays.
void RequestWindow::begin_anew() {
  if (mutated("mutate_first_burst_unbounded")) return;
  at_first_ = true;
  if (allowed() > kAtFirst) allowed_.store(kAtFirst, std::memory_order_relaxed);
}

void RequestWindow::send_again() {
  for (auto r = requests_.begin(); r != requests_.end() && (*r)->number_ <= sent_to_; ++r) {
    (*r)->repeated_ = true;
  }
  sent_to_ = 0;
}

void RequestWindow::allow(uint64_t credit) {
  at_first_ = false;
  const bool bound = credit != 0 && credit < kMostUnderWay && !mutated("mutate_credit_ignored");
  allowed_.store(bound ? credit : kMostUnderWay, std::memory_order_relaxed);
}

Request* RequestWindow::next_to_send(Nanos t) {
  if (requests_.empty()) return nullptr;
  // Mostly it is the last one's turn.
  const auto next =
      requests_.back()->number_ == sent_to_ + 1 ? std::prev(requests_.end()) : behind(sent_to_);
  const auto under_way = static_cast<size_t>(next - requests_.begin());
  if (next == requests_.end()) return nullptr;
  if (const size_t most = allowed(); under_way >= most) {
    if (most == kMostUnderWay || at_first_) return nullptr;  // not for want of credit
    const auto fresh = std::max(next, behind(held_to_));
    held_back_ += static_cast<uint64_t>(requests_.end() - fresh);
    held_to_ = requests_.back()->number_;
    return nullptr;
  }
  sent_to_ = (*next)->number_;
  (*next)->sent_at_ = t;
  return next->get();
}

std::vector<Request*> RequestWindow::to_ask_again(Nanos since, Nanos t) {
  if (requests_.empty()) return {};
  Request& oldest = *requests_.front();
  const Nanos wait = answer_wait();
  if (t - std::max({asked_at_, since, oldest.sent_at_}) <= wait) return {};
  asked_at_ = t;
  std::vector<Request*> again{&oldest};
  const auto sent = behind(sent_to_);
  auto next = behind(std::max(asked_to_, oldest.number_));
  if (next >= sent) next = std::next(requests_.begin());
  size_t considered = 0, bytes = 0;
  for (; next < sent && considered < kMostAskedAgain && bytes < kMostBytesAskedAgain; ++next) {
    ++considered;
    Request& r = **next;
    asked_to_ = r.number_;
    if (t - r.sent_at_ <= wait) continue;
    again.push_back(&r);
    bytes += r.payload_.size();
  }
  for (Request* r : again) {
    r->repeated_ = true;
    r->sent_at_ = t;
  }
  answer_time_.repeated(t);
  return again;
}

}  // namespace cmi::fabric
