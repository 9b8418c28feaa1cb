// The page that comes with a swap's answer. Application threads, all signals blocked; answers come
// in any thread.
#include "core/memory/importer/swap_fetch.hpp"

#include <cstring>
#include <utility>
#include <vector>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/importer/cache.hpp"
#include "core/memory/importer/dirty_intents.hpp"
#include "core/memory/importer/fetch.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/intent_request.hpp"
#include "core/memory/importer/page_moves.hpp"
#include "core/memory/wire/replies.hpp"

namespace cmi::memory {

namespace {
// One of so many pages is not asked for, to find out whether it would be missed.
constexpr uint32_t kTried = 64;
}  // namespace

void SwapFetch::begin() {
  if (!imp_.home_takes(FeaturesPart::kSwapFetch)) return;
  if (fault_point_fails("no_swap_fetch")) return;
  Page& page = imp_.page(index_);
  page.lock();
  const bool absent = page.state == PageState::kAbsent;
  // Where it takes a wait to have memory for it, or a message that the home notes the region, the
  // next access does that.
  page_ = absent && page.swaps.wants_page() && imp_.grant.has(fabric::kRead) &&
          !(imp_.cache.use.limit() < imp_.pages && !imp_.cache.use.has_room(1));
  if (page_ && core_.traffic.swap_fetches.fetch_add(1) % kTried == kTried - 1) {
    page.swaps.try_without();
    page_ = false;
  }
  if (page_) {
    page.marker = false;
    ++page.generation;
    set_state(core_, imp_, page, PageState::kFetching);
    if (!imp_.regions.known.shared(region_of(index_))) {
      set_state(core_, imp_, page, PageState::kAbsent);
      page_ = false;
    }
  }
  const bool may_store = imp_.intents && imp_.grant.has(fabric::kWrite) && !view_.read_only &&
                         !page.intent.held() && !page.intent.asked();
  if (may_store && page.swaps.wants_intent() && imp_.dirty.unused_intents.has_room() &&
      (page_ || page.state == PageState::kClean) && !page.pinned &&
      imp_.dirty.late_intents.epoch(index_) == 0) {
    epoch_ = ask_intent_of(imp_, index_);
  }
  page.unlock();
  if (page_ && !back_pages(imp_, {index_, 1})) give_up();  // a system call: without the lock
}

SwapFetchRequest SwapFetch::request(const CasRequest& swap, uint32_t pages,
                                    std::shared_ptr<SentSwap> to) {
  sent_ = std::move(to);
  sent_->fetches = true;
  sent_->page = index_;
  sent_->epoch = epoch_;
  if (page_) sent_->content.resize(kPageSize);
  return {swap.uid, swap.instance, swap.offset, swap.expected, swap.desired, uint8_t{page_},
          epoch_,   pages,         {}};
}

namespace {
// What the answer brings is given back, or it brings nothing.
void end_late_intent(Import& imp, const SentSwap& swap) {
  if (swap.epoch == 0) return;
  if (swap.intent) give_back_intents(imp, {{swap.page, swap.epoch}});
  imp.dirty.late_intents.remove(swap.page);  // behind the message, which goes before any later one
}

// Of a request that was answered, or will never be.
void read_swap_answer(SentSwap& to, Bytes answer) {
  const auto reply = split_reply(answer);
  if (!reply) return;
  to.stores = reply->status;
  if (reply->status != WireStatus::kOk) return;
  if (to.fetches) {
    SwapFetchReply m;
    if (!decode(reply->body, &m)) return;
    to.swap = static_cast<WireStatus>(m.swap);
    to.found = m.found;
    to.intent = m.intent != 0;
    to.has_content = !m.body.empty() && m.body.size() == to.content.size();
    if (to.has_content) std::memcpy(to.content.data(), m.body.data(), kPageSize);
    return;
  }
  PublishSwapReply m;
  if (!decode(reply->body, &m)) return;
  to.swap = static_cast<WireStatus>(m.swap);
  to.found = m.found;
}
}  // namespace

void take_swap_answer(const std::shared_ptr<Import>& imp, SentSwap& to, Bytes answer) {
  read_swap_answer(to, answer);
  if (to.fate.exchange(SentSwap::Fate::kAnswered) == SentSwap::Fate::kGivenUp) {
    end_late_intent(*imp, to);
  }
}

// The intent is here, and no store has used it yet. Under the page's lock.
void SwapFetch::note_unused(Page& page) {
  if (!page.swaps.brought_intent()) return;
  imp_.dirty.unused_intents.add(index_, now());
  core_.traffic.intents_unused.store(true);
}

// As IntentRequest does with that of a single page.
void SwapFetch::end_intent(bool granted) {
  if (epoch_ == 0) return;
  Page& page = imp_.page(index_);
  page.lock();
  const bool held = page.intent.answered(granted);
  if (held) note_unused(page);
  page.unlock();
  const uint8_t epoch = std::exchange(epoch_, uint8_t{0});
  if (granted && !held) give_back_intents(imp_, {{index_, epoch}});
}

bool SwapFetch::take(const SentSwap& answer) {
  end_intent(answer.intent);
  if (!std::exchange(page_, false)) {
    imp_.changes.notify();
    return false;
  }
  if (!answer.has_content) {
    give_up_fetch(core_, view_.import, index_, 1);
    return false;
  }
  // Until it is delivered nobody else touches it, also where it has become stale meanwhile.
  std::memcpy(imp_.page_data(index_), answer.content.data(), kPageSize);
  imp_.page(index_).released = false;  // entered before it was read (rule 28)
  count_fetched(core_, imp_, 1);
  count(core_.parts.stats.swaps_with_page);
  deliver(core_, imp_, &view_, {index_, 1}, index_, false);
  return true;
}

void SwapFetch::give_up() {
  if (std::exchange(page_, false)) give_up_fetch(core_, view_.import, index_, 1);
  if (epoch_ == 0) return;
  Page& page = imp_.page(index_);
  page.lock();
  // The home may set it late, where it has no other one by then. The next one has another epoch.
  const uint8_t epoch = page.intent.give_back();
  if (sent_ != nullptr) imp_.dirty.late_intents.add(index_, epoch);
  page.unlock();
  epoch_ = 0;
  imp_.changes.notify();
  if (sent_ != nullptr &&
      sent_->fate.exchange(SentSwap::Fate::kGivenUp) == SentSwap::Fate::kAnswered) {
    end_late_intent(imp_, *sent_);
  }
}

bool SwapFetch::fetch(Deadline deadline) {
  begin();
  const bool fetches = std::exchange(page_, false);
  if (!fetches) {
    give_up();
    return false;
  }
  count(core_.parts.stats.swaps_with_page);
  const Deadline soon = Deadline::in(kPatience);
  const Fetch::Until until{soon.at < deadline.at ? soon : deadline, deadline};
  if (epoch_ == 0) {
    return Fetch(core_, view_, index_, false, nullptr, until).run() == Exception::kNone;
  }
  IntentRequest request(core_, imp_, index_, std::exchange(epoch_, uint8_t{0}));
  const Exception e = Fetch(core_, view_, index_, false, &request, until).run();
  if (request.granted()) {
    Page& page = imp_.page(index_);
    page.lock();
    note_unused(page);
    page.unlock();
  }
  return e == Exception::kNone;
}

namespace {
void give_back_due(Import& imp, Nanos t) {
  std::vector<DirtyIntent> unused;
  for (const uint32_t index : imp.dirty.unused_intents.take(t)) {
    Page& page = imp.page(index);
    page.lock();
    const bool idle = page.state == PageState::kClean || page.state == PageState::kAbsent;
    const SwapHabit::Due due = page.swaps.due(idle);
    if (due == SwapHabit::Due::kKeep) imp.dirty.unused_intents.add(index, t);
    if (due == SwapHabit::Due::kGiveBack) {
      if (const uint8_t epoch = page.intent.take(); epoch != 0) unused.push_back({index, epoch});
    }
    page.unlock();
  }
  if (!unused.empty()) give_back_intents(imp, unused);
}
}  // namespace

void give_back_unused(ImporterCore& core) {
  if (!core.traffic.intents_unused.exchange(false)) return;
  const Nanos t = now();
  for (const auto& imp : core.imports.all()) {
    if (imp->dirty.unused_intents.empty()) continue;
    give_back_due(*imp, t);
    if (!imp->dirty.unused_intents.empty()) core.traffic.intents_unused.store(true);
  }
}

}  // namespace cmi::memory
