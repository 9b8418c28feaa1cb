// Pages that were released one by one (rule 28), on their way back: the home notes them again
// before they are read. One comes with the home's answer; several are read one-sided after it. And
// the first page of a region, which comes with the answer as well. Runs in the SIGBUS handler, all
// signals blocked.
#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/cache.hpp"
#include "core/memory/importer/fetch.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/intent_request.hpp"
#include "core/memory/wire/replies.hpp"

namespace cmi::memory {

bool enter_pages(Import& imp, PageRange pages, Deadline deadline) {
  Page* const first = &imp.page(pages.first);
  Page* const end = first + pages.count;
  const auto released = [](const Page& p) { return p.released; };
  if (std::none_of(first, end, released) || mutated("mutate_released_read")) return true;
  const EnterPagesRequest m{imp.rseg.uid, imp.instance, pages.first, pages.count};
  const auto answer =
      imp.link->call(static_cast<uint16_t>(RequestType::kEnterPages), Encoded(m), deadline);
  const auto reply = split_reply(answer ? Bytes(*answer) : Bytes());
  if (!reply || reply->status != WireStatus::kOk) return false;
  std::for_each(first, end, [](Page& p) { p.released = false; });
  return true;
}

// The wanted page alone, by a message instead of a read.
Fetch::Outcome Fetch::fetch_released() {
  fault_point("fetch_before_read");
  const uint32_t seen = imp_.changes.seen();
  const EnterPagesRequest m{imp_.rseg.uid, imp_.instance, wanted_, 1};
  const auto request =
      imp_.link->start(static_cast<uint16_t>(RequestType::kEnterPages), Encoded(m));
  overlap();
  if (imp_.link->await(request, deadline_) != fabric::Cause::kOk) {
    imp_.link->forget(request);
    return std::nullopt;
  }
  const auto reply = split_reply(request->reply());
  if (!reply || reply->status != WireStatus::kOk || reply->body.size() != kPageSize) {
    return not_entered(reply ? reply->status : WireStatus::kMalformed, seen);
  }
  return entered(reply->body);
}

// The first page of a region that the home is to note: one message, where asking for the region and
// reading the page are two.
bool Fetch::may_acquire() const {
  return n_ == 1 && !imp_.regions.known.shared(region_of(wanted_)) &&
         imp_.home_takes(FeaturesPart::kAcquireFetch) && imp_.allows(wanted_) &&
         !mutated("mutate_acquire_late") && !fault_point_fails("no_acquire_fetch");
}

// *asked: it was asked for. Not where another thread has claimed the region meanwhile.
Fetch::Outcome Fetch::acquire_and_fetch(bool* asked) {
  const uint32_t region = region_of(wanted_), seen = imp_.changes.seen();
  std::shared_ptr<fabric::Request> request;  // with the answer
  {
    Guard g(imp_.regions.mu);
    if (imp_.regions.all_shared(region, region) || !back_pages(imp_, {wanted_, 1})) {
      return std::nullopt;
    }
    *asked = true;
    fault_point("fetch_before_read");
    const uint32_t epoch = imp_.regions.begin(region, region);
    const bool held =
        intent_ != nullptr ? ask_intent_and_region(epoch) : ask_region(epoch, &request);
    imp_.regions.end(region, region, held);
  }
  // A refusal is looked into without the lock of all regions: that takes messages and time, and may
  // end the import.
  if (intent_ != nullptr) return with_intent();
  if (request == nullptr) return std::nullopt;
  const auto reply = split_reply(request->reply());
  const WireStatus status = reply ? reply->status : WireStatus::kMalformed;
  const bool good = status == WireStatus::kOk && reply->body.size() == kPageSize;
  return good ? entered(reply->body) : not_entered(status, seen);
}

bool Fetch::ask_intent_and_region(uint32_t epoch) {
  const auto meanwhile = [this] { overlap(); };
  intent_->fetch(imp_.page_data(wanted_), epoch, deadline_, std::ref(meanwhile));
  return intent_->granted();
}

// Whether the home has noted the region. *request: set if there is an answer.
bool Fetch::ask_region(uint32_t epoch, std::shared_ptr<fabric::Request>* request) {
  const AcquireFetchRequest m{imp_.rseg.uid, imp_.instance, {wanted_, 0}, epoch};
  auto asked = imp_.link->start(static_cast<uint16_t>(RequestType::kAcquireFetch), Encoded(m));
  overlap();
  if (imp_.link->await(asked, deadline_) != fabric::Cause::kOk) {
    imp_.link->forget(asked);
    return false;
  }
  const auto reply = split_reply(asked->reply());
  *request = std::move(asked);
  return reply && reply->status == WireStatus::kOk;
}

Fetch::Outcome Fetch::entered(Bytes content) {
  std::memcpy(imp_.page_data(wanted_), content.data(), kPageSize);
  imp_.page(wanted_).released = false;
  return arrived();
}

// The home's answer was another one. `seen`: ChangeWait::seen() before it was asked.
Fetch::Outcome Fetch::not_entered(WireStatus status, uint32_t seen) {
  switch (status) {
    case WireStatus::kBroken:
      give_up(wanted_, 1);
      imp_.flux.doubt({&wanted_, 1});  // asked about before it is fetched again
      return Exception::kUe;
    case WireStatus::kRange:
      give_up(wanted_, 1);
      return Exception::kSegBrk;
    case WireStatus::kBreakUnacknowledged:
      imp_.changes.wait(seen, kBreakNap);
      break;
    default:
      break;
  }
  return std::nullopt;  // recover() asks why
}

}  // namespace cmi::memory
