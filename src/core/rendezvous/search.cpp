#include "core/rendezvous/search.hpp"

#include <time.h>

#include <algorithm>
#include <utility>

#include "core/base/cause.hpp"
#include "core/rendezvous/folder_offers.hpp"

namespace cmi::rendezvous {

namespace {

// Between looks, growing.
constexpr Nanos kFirstNap = kMilli, kLongestNap = 50 * kMilli;
// An offerer that answers no more may have been replaced by another.
constexpr Nanos kLongestLook = 5 * kSecond;

void nap(Nanos span) {
  const timespec t{static_cast<time_t>(span / kSecond), static_cast<long>(span % kSecond)};
  ::nanosleep(&t, nullptr);
}

}  // namespace

Search::Search(Place at, std::string name, PmixOffers& pmix)
    : at_(std::move(at)), name_(std::move(name)), pmix_(pmix) {
  if (at_.kind == Place::Kind::kTcp) tcp_ = std::make_unique<TcpFinder>(at_, name_);
}

Result<Offer> Search::look(Deadline deadline) {
  if (tcp_ != nullptr) return tcp_->ask(std::clamp(deadline.left(), kOneLook, kLongestLook));
  if (at_.kind == Place::Kind::kPmix) return pmix_.find(at_.rank.value_or(0), name_, deadline);
  return read_offer(at_.folder, name_);
}

Result<Offer> Search::await(const std::optional<Offer>& gone, Deadline deadline) {
  for (Nanos span = kFirstNap;; span = std::min(2 * span, kLongestNap)) {
    auto offer = look(deadline);
    if (offer && gone && *offer == *gone) {
      offer = because(Status::kReconfig, "the home of what is offered is gone");
    }
    const Status s = offer.status();
    const bool final = s == Status::kPerm || s == Status::kNoMem || s == Status::kNotSupp;
    const bool hopeless = tcp_ != nullptr && tcp_->hopeless();
    if (ok(s) || final || hopeless || deadline.passed()) return offer;
    nap(std::min(span, deadline.left()));
  }
}

}  // namespace cmi::rendezvous
