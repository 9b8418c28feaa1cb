// Asking for updates, and applying them.
#include "core/memory/importer/updates.hpp"

#include "core/base/fault_point.hpp"
#include "core/memory/page/diff.hpp"

namespace cmi::memory {

namespace {
constexpr size_t kMostPending = 64;  // requests without an answer, from which on no more is asked
}  // namespace

void subscribe(Import& imp, uint32_t index) {
  if (imp.link->pending() >= kMostPending) return;
  Page& page = imp.page(index);
  page.lock();
  const uint32_t epoch =
      page.state == PageState::kClean ? imp.subscribed.fetched(index, page.generation) : 0;
  page.unlock();
  if (epoch == 0) return;
  const SubscribeRequest m{imp.rseg.uid, imp.instance, index, epoch};
  fault_point("follow_before_send");
  imp.link->start(static_cast<uint16_t>(RequestType::kSubscribe), Encoded(m));
}

bool update(ImporterCore& core, Import& imp, uint32_t index, uint32_t epoch, uint32_t number,
            Bytes diff) {
  using Verdict = SubscribedPages::Verdict;
  Page& page = imp.page(index);
  page.lock();
  auto verdict = Verdict::kDrop;
  if (page.state == PageState::kClean) {
    verdict = imp.subscribed.told(index, epoch, number, page.generation);
  } else if (may_be_mapped(page.state)) {
    imp.subscribed.stored_to(index);
  }
  if (verdict == Verdict::kApply) {
    // Through the service view, word by word: threads of the client may be loading them.
    Reader in(diff);
    if (apply_diff(in, imp.page_data(index)) && in.done()) {
      imp.subscribed.applied(index, ++page.generation);
      count(core.parts.stats.pages_updated);
    } else {
      verdict = Verdict::kDrop;
    }
  }
  page.unlock();
  return verdict != Verdict::kDrop;
}

}  // namespace cmi::memory
