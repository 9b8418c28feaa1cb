#include "core/memory/home/flux_tracker.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/memory/home/large_segment.hpp"

namespace cmi::memory {

void FluxTracker::lose_intents(Segment& s, const ContextId& client, uint32_t instance,
                               const RoundPtr& p) {
  PageSet lost;
  {
    Guard g(mu_);
    rounds_.close_received(s, client, instance, p);
    for (auto& h : s.sharers) {
      if (h.client != client || (instance != 0 && h.instance != instance)) continue;
      h.intents.each([&lost](uint32_t page, uint8_t) { lost.add({page, 1}); });
      h.intents.clear();
      if (h.local == nullptr) continue;
      if (!access::client_consistent(s.flags)) {
        for (const PageRange& r : h.local->marked().all()) lost.add(r);
      }
      h.local.reset();
    }
  }
  // The other imports of a client that lives on are notified like any.
  if (!lost.empty()) put_in_flux(s, instance == 0 ? client : ContextId{}, lost.all(), p);
}

void FluxTracker::put_in_flux(Segment& s, const ContextId& except, std::vector<PageRange> pages,
                              const RoundPtr& p) {
  pages = outward(s, pages);
  trace(kFacSeg, kWarn, "segment {}: an importer's end leaves {} ranges of pages in flux", s.id,
        pages.size());
  if (!covers_.cover(s, pages)) {
    // Too many mappings for this process: better all of it is in flux than a torn page is read.
    pages = {{0, s.pages()}};
    alert(kFacSeg, "segment {}: no memory to single out its pages in flux: all of it is", s.id);
    if (!covers_.cover(s, pages)) {
      alert(kFacSeg, "segment {}: its pages in flux stay accessible here", s.id);
    }
  }
  Guard g(mu_);
  for (const PageRange& r : pages) s.flux.pages.add(r);
  fault_point("in_flux_before_notified");
  for (auto& h : s.sharers) {
    if (!h.loads() || h.client == except) continue;
    rounds_.notify_ranges(p, s, h, NotificationType::kInFlux, pages);
  }
  changed(s, p);
}

void FluxTracker::changed(Segment& s, const RoundPtr& p) {
  s.flux.list.reset();
  if (!s.flux.watchers.empty()) set_unseen();
  s.flux.watchers.changed(s.flux.pages, p, now(),
                          [&](node::ContextSlot slot) { return send_list(s, slot); });
}

FluxWatchers::Sent FluxTracker::send_list(Segment& s, node::ContextSlot slot) {
  if (!s.flux.list) {
    Fd list(memfd_create("cmi-in-flux", MFD_CLOEXEC));
    const auto all = s.flux.pages.all();
    const auto bytes = static_cast<ssize_t>(all.size() * sizeof(PageRange));
    if (!list || ::pwrite(list.get(), all.data(), static_cast<size_t>(bytes), 0) != bytes) {
      return FluxWatchers::Sent::kNo;
    }
    s.flux.list = std::move(list);
  }
  BusInFlux m;
  m.segment = s.id;
  m.version = s.flux.watchers.version();
  const Status sent = channel_.send(slot, Encoded(m), s.flux.list.get());
  if (sent == Status::kInval) return FluxWatchers::Sent::kEnded;
  return ok(sent) ? FluxWatchers::Sent::kYes : FluxWatchers::Sent::kNo;
}

bool FluxTracker::remind(Segment& s, Nanos t, Finished* done) {
  std::vector<RoundPtr> over;
  const auto send = [this, &s](node::ContextSlot slot) { return send_list(s, slot); };
  const bool unseen = s.flux.watchers.remind(t, send, &over);
  Guard g(mu_);
  for (auto& p : over) rounds_.settle(p, done);
  return unseen;
}

bool FluxTracker::add_watcher(Segment& s, node::ContextSlot slot) {
  return s.flux.watchers.add(slot, s.flux.pages, now(),
                             [&](node::ContextSlot to) { return send_list(s, to); });
}

void FluxTracker::seen(Segment& s, node::ContextSlot slot, uint64_t version, Finished* done) {
  std::vector<RoundPtr> over;
  const auto back = s.flux.watchers.seen(slot, version, s.flux.pages, &over);
  Guard g(mu_);
  // What it stored to pages that it has uncovered, before they were watched again.
  if (!back.empty() && s.shared()) rounds_.publish_stores(s, back);
  for (auto& p : over) rounds_.settle(p, done);
}

void FluxTracker::take_list(Segment& s, uint64_t version, const Fd& list) {
  struct stat st {};
  if (version <= s.flux.version || ::fstat(list.get(), &st) != 0 || st.st_size < 0) return;
  const auto bytes = static_cast<size_t>(st.st_size);
  if (bytes % sizeof(PageRange) != 0 || bytes / sizeof(PageRange) > s.pages()) return;
  std::vector<PageRange> ranges(bytes / sizeof(PageRange));
  if (::pread(list.get(), ranges.data(), bytes, 0) != static_cast<ssize_t>(bytes)) return;
  PageSet next;
  for (const PageRange& r : ranges) {
    if (r.first >= s.pages() || r.count > s.pages() - r.first) return;
    next.add(r);
  }
  if (!covers_.cover(s, s.flux.pages.missing(next.all()))) {
    next.add({0, s.pages()});
    (void)covers_.cover(s, {{0, s.pages()}});
  }
  for (const PageRange& r : next.missing(s.flux.pages.all())) {
    if (!covers_.uncover(s, r)) next.add(r);  // stays in flux here
  }
  Guard g(mu_);
  s.flux.pages = std::move(next);
  s.flux.version = version;
}

bool FluxTracker::report_seen(Segment& s) {
  if (s.flux.unreported == 0) return true;
  BusInFluxSeen m;
  m.segment = s.id;
  m.version = s.flux.unreported;
  if (channel_.send(s.owner, Encoded(m)) == Status::kReconfig) return false;
  s.flux.unreported = 0;
  return true;
}

}  // namespace cmi::memory
