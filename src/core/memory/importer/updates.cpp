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
  fault_point("subscribe_before_send");
  imp.link->start(static_cast<uint16_t>(RequestType::kSubscribe), Encoded(m));
}

namespace {
// Through the service view, word by word: threads of the client may be loading them. Under the
// page's lock. False: malformed.
bool apply(ImporterCore& core, Import& imp, Page& page, const InvalidateNotification::Update& u) {
  Reader in(u.diff);
  if (!apply_diff(in, imp.page_data(u.page)) || !in.done()) return false;
  imp.subscribed.applied(u.page, ++page.generation);
  count(core.parts.stats.pages_updated);
  return true;
}
}  // namespace

bool update(ImporterCore& core, Import& imp, const InvalidateNotification::Update& u) {
  Page& page = imp.page(u.page);
  page.lock();
  const UpdateMatch match = imp.subscribed.match(u.page, u.epoch, u.number, page.generation);
  UpdateAction action = decide_update(page.state, match);
  if (action == UpdateAction::kApply && !apply(core, imp, page, u)) action = UpdateAction::kDrop;
  if (action == UpdateAction::kUnsubscribe) imp.subscribed.stored_to(u.page);
  page.unlock();
  return action == UpdateAction::kApply || action == UpdateAction::kKeep;
}

}  // namespace cmi::memory
