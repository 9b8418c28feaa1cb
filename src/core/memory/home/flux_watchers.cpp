#include "core/memory/home/flux_watchers.hpp"

#include <algorithm>
#include <utility>

namespace cmi::memory {

FluxWatchers::Watcher* FluxWatchers::find(node::ContextSlot slot) {
  const auto w = std::find_if(watchers_.begin(), watchers_.end(),
                              [&](const Watcher& x) { return x.slot == slot; });
  return w == watchers_.end() ? nullptr : &*w;
}

bool FluxWatchers::send_to(Watcher& w, Nanos t, const Send& send) {
  w.sent = t;
  const Sent sent = send(w.slot);
  if (sent == Sent::kEnded) w.seen = version_;  // nothing is to be covered there any more
  return sent == Sent::kYes;
}

void FluxWatchers::changed(const PageSet& in_flux, const RoundPtr& round, Nanos t,
                           const Send& send) {
  ++version_;
  for (Watcher& w : watchers_) {
    for (const PageRange& r : in_flux.all()) w.covered.add(r);
    ++round->waiting;
    w.waiting.push_back(round);
    w.born = t;
    (void)send_to(w, t, send);  // where it does not come through, remind() repeats it
  }
}

bool FluxWatchers::add(node::ContextSlot slot, const PageSet& in_flux, Nanos t, const Send& send) {
  Watcher* w = find(slot);
  if (w == nullptr) w = &watchers_.emplace_back(Watcher{slot, in_flux, version_, 0, 0, {}});
  // Datagrams of one sender stay in order: it has the list before it has the answer.
  return in_flux.empty() || send_to(*w, t, send);
}

std::vector<PageRange> FluxWatchers::seen(node::ContextSlot slot, uint64_t version,
                                          const PageSet& in_flux, std::vector<RoundPtr>* over) {
  Watcher* const w = find(slot);
  if (w == nullptr || version < version_) return {};
  w->seen = version_;
  auto back = in_flux.missing(w->covered.all());
  w->covered = in_flux;
  *over = std::exchange(w->waiting, {});
  return back;
}

bool FluxWatchers::remind(Nanos t, const Send& send, std::vector<RoundPtr>* over) {
  bool unseen = false;
  for (Watcher& w : watchers_) {
    // Copies do not help a process that is stopped and leaves its queue unread.
    const bool late = t - w.sent > std::max(kRemind, w.sent - w.born);
    if (w.seen < version_ && late) (void)send_to(w, t, send);
    unseen = unseen || w.seen < version_;
  }
  std::erase_if(watchers_, [&](Watcher& w) {
    if (w.seen < version_ || w.waiting.empty()) return false;  // the latter: it lives
    over->insert(over->end(), w.waiting.begin(), w.waiting.end());
    return true;
  });
  return unseen;
}

const PageSet* FluxWatchers::covered(node::ContextSlot slot) const {
  const Watcher* const w = const_cast<FluxWatchers*>(this)->find(slot);
  return w != nullptr ? &w->covered : nullptr;
}

void FluxWatchers::also_covered(node::ContextSlot slot, const PageSet& pages) {
  Watcher* const w = find(slot);
  if (w == nullptr) return;
  for (const PageRange& r : pages.all()) w->covered.add(r);
}

}  // namespace cmi::memory
