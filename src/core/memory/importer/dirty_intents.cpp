// Asking for dirty intents, giving them back, and lists of pages in flux.
#include "core/memory/importer/dirty_intents.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/intent_request.hpp"

namespace cmi::memory {

IntentRequest::~IntentRequest() {
  // One that was not answered may be set at the home all the same: the next one of this page
  // replaces it.
  if (!ended_) end(false);
  if (request_ != nullptr) imp_.link->forget(request_);
}

// No thread waits for the pages behind the first. Their intents are given back if they were not
// granted or if that is unknown, and so are intents of pages that were dropped meanwhile.
void IntentRequest::end(bool granted) {
  std::vector<DirtyIntent> unused;
  for (uint32_t i = 0; i < count_; ++i) {
    Page& page = imp_.page(page_ + i);
    page.lock();
    bool shared = false;
    if (granted || i == 0) shared = page.intent.answered(granted);
    const uint8_t epoch = granted ? page.intent.epoch() : i > 0 ? page.intent.give_back() : 0;
    page.unlock();
    if (i == 0) granted_ = shared;
    if (!shared && epoch != 0) unused.push_back({page_ + i, epoch});
  }
  ended_ = true;
  imp_.changes.notify();
  if (!unused.empty()) give_back_intents(imp_, unused);
}

void IntentRequest::widen(uint32_t count) {
  for (; count_ < count; ++count_) {
    const uint32_t index = page_ + count_;
    if (index >= imp_.brk.load(std::memory_order_relaxed) || !imp_.allows(index)) return;
    Page& page = imp_.page(index);
    page.lock();
    const bool asks = page.state == PageState::kClean && !page.pinned && !page.marker &&
                      !page.intent.held() && !page.intent.asked() && !imp_.flux.contains(index);
    if (asks) epochs_[count_] = ask_intent_of(imp_, index);
    page.unlock();
    if (!asks) return;
  }
}

void IntentRequest::start() {
  if (request_ == nullptr) start(RequestType::kDirtyIntent);
}

void IntentRequest::start(RequestType type) {
  std::byte buf[16 + StoreStreams::kMaxWindow * kDirtyIntentSize];
  Writer out(buf);
  encode(DirtyIntentRequest{imp_.rseg.uid, imp_.instance, {}}, out);
  const uint32_t told = mutated("mutate_ahead_without_intent") ? 1 : count_;
  for (uint32_t i = 0; i < told; ++i) DirtyIntentList::put(out, {page_ + i, epochs_[i]});
  fault_point("intent_before_send");
  request_ = imp_.link->start(static_cast<uint16_t>(type), out.done());
  if (mutated("mutate_intent_not_awaited")) end(true);
}

Exception IntentRequest::await(Deadline deadline) {
  if (!awaited_) {
    start();
    if (!ended_) take_answer(nullptr, deadline);
  }
  return ended_ ? Exception::kNone : refused(deadline);
}

void IntentRequest::fetch(std::byte* content, uint32_t region_epoch, Deadline deadline,
                          const std::function<void()>& meanwhile) {
  if (request_ != nullptr) imp_.link->forget(request_);  // of a read of several pages that failed
  if (region_epoch == 0) {
    start(RequestType::kFetchWithIntent);
  } else {
    const AcquireFetchRequest m{imp_.rseg.uid, imp_.instance, {page_, epochs_[0]}, region_epoch};
    fault_point("intent_before_send");
    request_ = imp_.link->start(static_cast<uint16_t>(RequestType::kAcquireFetch), Encoded(m));
  }
  meanwhile();
  take_answer(content, deadline);
}

// Where it is granted that is all; else refused() is to be called.
void IntentRequest::take_answer(std::byte* content, Deadline deadline) {
  awaited_ = true;
  seen_ = imp_.changes.seen();
  if (imp_.link->await(request_, deadline) != fabric::Cause::kOk) return;
  const auto reply = split_reply(request_->reply());
  const Bytes page = reply ? reply->body : Bytes();
  status_ = reply ? reply->status : WireStatus::kOk;
  const bool good =
      reply && status_ == WireStatus::kOk && page.size() == (content != nullptr ? kPageSize : 0);
  if (good && content != nullptr) std::memcpy(content, page.data(), kPageSize);
  request_.reset();
  if (!good) return;
  end(true);
  fault_point("intent_granted");
}

Exception IntentRequest::refused(Deadline deadline) {
  const WireStatus status = status_;
  // The wait comes before end(): until then no other thread asks for what would be refused as well.
  if (status == WireStatus::kBreakUnacknowledged) imp_.changes.wait(seen_, kBreakNap);
  end(false);
  // Of several pages nobody knows which one it is: the first is asked for alone.
  const bool refused = status == WireStatus::kInFlux || status == WireStatus::kRange;
  if (refused && count_ > 1) return deadline.passed() ? Exception::kTransient : Exception::kNone;
  switch (status) {
    case WireStatus::kInFlux:
      return Exception::kConsist;
    case WireStatus::kRange:
      return Exception::kSegBrk;
    case WireStatus::kBroken:
      imp_.flux.doubt({&page_, 1});  // asked about before it is fetched again, and not read ahead
      return Exception::kUe;
    case WireStatus::kBreakUnacknowledged:
      return deadline.passed() ? Exception::kTransient : Exception::kNone;
    default:
      break;
  }
  const Exception e = explain(core_, imp_, deadline);
  return e == Exception::kNone && deadline.passed() ? Exception::kTransient : e;
}

uint8_t ask_intent_of(Import& imp, uint32_t page) {
  const uint8_t late =
      mutated("mutate_late_epoch_reused") ? uint8_t{0} : imp.dirty.late_intents.epoch(page);
  return imp.page(page).intent.ask(late);
}

void give_back_intents(const Import& imp, const std::vector<DirtyIntent>& intents) {
  constexpr size_t kAtOnce = (fabric::kMaxPayload - 64) / kDirtyIntentSize;
  std::vector<std::byte> buf(64 + std::min(kAtOnce, intents.size()) * kDirtyIntentSize);
  for (size_t at = 0; at < intents.size(); at += kAtOnce) {
    Writer out(buf);
    encode(DirtyIntentRequest{imp.rseg.uid, imp.instance, {}}, out);
    for (size_t i = at; i < std::min(at + kAtOnce, intents.size()); ++i) {
      DirtyIntentList::put(out, intents[i]);
    }
    imp.link->start(static_cast<uint16_t>(RequestType::kDropIntent), out.done());
  }
}

Exception ask_in_flux(ImporterCore& core, Import& imp, uint32_t page, Deadline deadline) {
  const uint64_t lists = imp.flux.lists();
  const AskFluxRequest m{imp.rseg.uid, imp.instance, page};
  auto answer = imp.link->call(static_cast<uint16_t>(RequestType::kAskFlux), Encoded(m), deadline);
  const auto reply = split_reply(answer ? Bytes(*answer) : Bytes());
  const WireStatus status = reply ? reply->status : WireStatus::kMalformed;
  if (status == WireStatus::kInFlux) return Exception::kConsist;
  if (status == WireStatus::kRange && imp.extensible) return Exception::kSegBrk;
  if (status == WireStatus::kBroken) {
    imp.flux.doubt({&page, 1});  // asked about before it is fetched again, and not read ahead
    return Exception::kUe;
  }
  if (status == WireStatus::kOk) {
    imp.flux.recovered(page, lists);  // where it still counts as listed, the next try asks again
    return Exception::kNone;
  }
  const Exception e = explain(core, imp, deadline);
  return e == Exception::kNone && deadline.passed() ? Exception::kTransient : e;
}

bool take_in_flux(Import& imp, const InFluxNotification& m, std::vector<PageRange>* pages) {
  const PageRangeList listed = m.ranges();
  for (size_t i = 0; i < listed.size(); ++i) {
    const PageRange r = listed[i];
    if (r.first >= imp.pages || r.count > imp.pages - r.first) return false;
    pages->push_back(r);
  }
  *pages = each_once(std::move(*pages));
  trace(kFacMem, kInfo, "segment {}: {} ranges of pages are in flux", imp.id, m.count);
  imp.flux.add(*pages);
  return true;
}

void settle_pages(Import& imp, std::vector<PageRange>* pages) {
  const auto settled = [](const Page& p) {
    return !p.in_flight && (p.state == PageState::kAbsent || p.state == PageState::kFetching ||
                            p.state == PageState::kStale);
  };
  if (!imp.cache.ready()) {
    std::erase_if(*pages, [&imp](const PageRange& r) { return imp.views.local.settled(r); });
    return;
  }
  while (!pages->empty()) {
    PageRange& r = pages->back();
    for (; r.count > 0; --r.count) {
      Page& p = imp.page(r.first + r.count - 1);
      p.lock();
      const bool home = settled(p) || !imp.flux.contains(r.first + r.count - 1);
      p.unlock();
      if (!home) return;
    }
    pages->pop_back();
  }
}

}  // namespace cmi::memory
