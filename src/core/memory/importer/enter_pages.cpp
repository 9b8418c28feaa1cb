// Pages that were released one by one (rule 28), on their way back: the home notes them again
// before they are read. One comes with the home's answer; several are read one-sided after it. Runs
// in the SIGBUS handler, all signals blocked.
#include <algorithm>
#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/fetch.hpp"
#include "core/memory/importer/import_access.hpp"

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
  std::memcpy(imp_.page_data(wanted_), reply->body.data(), kPageSize);
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
