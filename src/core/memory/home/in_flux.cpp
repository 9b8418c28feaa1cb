// Pages in flux of client-inconsistent segments, at their home: the dirty intents of the importers
// that store to them, what becomes of these when an importer dies, and who is told (rules 18 and
// 21).
//
// A page in flux is covered in the views of this node's processes (recovery.cpp), and listed at the
// importers, which ask before they access it. Other processes of the node watch a list: a file that
// is made anew with each change and told by its version, so that no order of datagrams matters.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/home.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

namespace {
constexpr Nanos kRemind = 20 * kMilli;

bool drop_intent(std::map<uint32_t, uint8_t>* intents, const DirtyIntent& mark) {
  auto it = intents->find(mark.page);
  // Of an earlier epoch: the page has been marked anew since.
  if (it == intents->end() || it->second != mark.epoch) return false;
  intents->erase(it);
  return true;
}
}  // namespace

void Home::on_dirty_intent(const fabric::ClientInfo& client, uint64_t number,
                           const DirtyIntentRequest& m, bool set) {
  WireStatus status = WireStatus::kMalformed;
  std::vector<DirtyIntent> intents;
  {
    Guard g(mu_);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    if (set) {
      status = check(client.id, m.uid, m.instance, fabric::kWrite, &s, &h);
    } else if (s = find_uid(m.uid); s != nullptr) {
      // No right is needed to say that nothing is in flux.
      h = find_sharer(*s, client.id, m.instance);
      status = h != nullptr ? WireStatus::kOk : WireStatus::kNotPresented;
    }
    if (status == WireStatus::kOk && access::client_consistent(s->flags)) {
      status = WireStatus::kMalformed;
    }
    const DirtyIntentList all = m.intents();
    for (size_t i = 0; status == WireStatus::kOk && i < all.size(); ++i) {
      const DirtyIntent mark = all[i];
      if (mark.epoch == 0) {
        status = WireStatus::kMalformed;
      } else if (set) {
        status = may_intend(*s, *h, mark.page);
      } else if (mark.page >= s->size / kPageSize) {
        status = WireStatus::kRange;
      }
      intents.push_back(mark);
    }
    if (status != WireStatus::kOk) {
      // None of them.
    } else if (set) {
      for (const DirtyIntent& mark : intents) h->intents[mark.page] = mark.epoch;
    } else {
      clear_intents(*s, *h, intents);
    }
  }
  fault_point("mark_before_reply");
  reply(parts_.server, client.id, number, status);
}

WireStatus Home::may_intend(const Segment& s, const Sharer& h, uint32_t page) {
  if (access::client_consistent(s.flags)) return WireStatus::kMalformed;
  if (page >= s.brk.bytes / kPageSize) return WireStatus::kRange;
  // What it would store there is of before, and dropped.
  if (page >= low_of(s, h) / kPageSize) return WireStatus::kBreakUnacknowledged;
  if (!h.covers(page, 1)) return WireStatus::kRights;
  return s.in_flux.contains(page) ? WireStatus::kInFlux  // the list is still on its way to it
                                  : WireStatus::kOk;
}

// A store miss in one exchange. What is read here is what a one-sided read would find between the
// request and the answer.
void Home::on_fetch_with_intent(const fabric::ClientInfo& client, uint64_t number,
                                const FetchWithIntentRequest& m) {
  const DirtyIntent mark = m.intent;
  std::byte answer[1 + kPageSize];
  WireStatus status = WireStatus::kMalformed;
  {
    Guard g(mu_);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    status = check(client.id, m.uid, m.instance, fabric::kRead | fabric::kWrite, &s, &h);
    if (status == WireStatus::kOk) status = may_intend(*s, *h, mark.page);
    if (status == WireStatus::kOk) {
      const std::byte* const at = s->service.data() + size_t{mark.page} * kPageSize;
      const auto copy = [&] { std::memcpy(answer + 1, at, kPageSize); };
      if (unless_broken(at, kPageSize, copy)) {
        h->intents[mark.page] = mark.epoch;
      } else {
        status = WireStatus::kBroken;
      }
    }
  }
  fault_point("mark_before_reply");
  answer[0] = static_cast<std::byte>(status);
  const size_t content = status == WireStatus::kOk ? kPageSize : 0;
  parts_.server.reply(client.id, number, {answer, 1 + content});
}

void Home::on_ask_flux(const fabric::ClientInfo& client, uint64_t number, const AskFluxRequest& m) {
  const uint32_t page = m.page;
  WireStatus status = WireStatus::kMalformed;
  {
    Guard g(mu_);
    Segment* s = nullptr;
    Sharer* h = nullptr;
    status = check(client.id, m.uid, m.instance, 0, &s, &h);
    if (status == WireStatus::kOk && page >= s->brk.bytes / kPageSize) {
      status = WireStatus::kRange;
    } else if (status == WireStatus::kOk && !h->covers(page, 1)) {
      status = WireStatus::kRights;
    } else if (status == WireStatus::kOk && s->in_flux.contains(page)) {
      status = WireStatus::kInFlux;
    } else if (status == WireStatus::kOk &&
               !page_intact(s->service.data() + size_t{page} * kPageSize)) {
      status = WireStatus::kBroken;
    }
  }
  reply(parts_.server, client.id, number, status);
}

void Home::clear_intents(InvalidationRound& p) {
  const auto intents = std::exchange(p.intents, {});
  if (intents.empty()) return;
  Segment* s = find_uid(p.uid);
  Sharer* h = s != nullptr ? find_sharer(*s, p.by, p.instance) : nullptr;
  if (h != nullptr) clear_intents(*s, *h, intents);  // else declared dead meanwhile
}

void Home::clear_intents(Segment& s, Sharer& h, const std::vector<DirtyIntent>& intents) {
  bool mends = false;
  for (const DirtyIntent& m : intents) {
    // A page in flux cannot be marked again.
    if (drop_intent(&h.intents, m)) mends = mends || s.in_flux.contains(m.page);
  }
  if (mends) made_progress(h.client);
}

void Home::lose_intents(Segment& s, const ContextId& client, uint32_t instance,
                        const std::shared_ptr<InvalidationRound>& p) {
  // The publisher may have had all his direct acks and have gone on, of which we have not heard:
  // that is home, and known to all when they have acknowledged it.
  for (auto& told : received_) {
    if (told->by != client || told->uid != s.uid) continue;
    if (instance != 0 && told->instance != instance) continue;
    if (!mutated("mutate_marks_of_received_lost")) clear_intents(*told);
    told->then.push_back(p);
    ++p->waiting;
  }
  PageSet lost;
  for (auto& h : s.sharers) {
    if (h.client != client || (instance != 0 && h.instance != instance)) continue;
    for (auto& [page, epoch] : h.intents) lost.add({page, 1});
    h.intents.clear();
  }
  // The other imports of a client that lives on are told like anybody's.
  if (!lost.empty()) put_in_flux(s, instance == 0 ? client : ContextId{}, lost.all(), p);
}

void Home::put_in_flux(Segment& s, const ContextId& except, std::vector<PageRange> pages,
                       const std::shared_ptr<InvalidationRound>& p) {
  pages = outward(s, pages);
  trace(kFacSeg, kWarn, "segment {}: an importer's end leaves {} ranges of pages in flux", s.id,
        pages.size());
  if (!cover(s, pages)) {
    // Too many mappings for this process: better all of it is in flux than a torn page is read.
    pages = {{0, static_cast<uint32_t>(s.size / kPageSize)}};
    alert(kFacSeg, "segment {}: no memory to single out its pages in flux: all of it is", s.id);
    if (!cover(s, pages))
      alert(kFacSeg, "segment {}: its pages in flux stay accessible here", s.id);
  }
  for (const PageRange& r : pages) s.in_flux.add(r);
  fault_point("in_flux_before_told");
  for (auto& h : s.sharers) {
    if (!h.loads() || h.client == except) continue;
    notify_ranges(p, s, h, NotificationType::kInFlux, pages);
  }
  flux_changed(s, p);
}

// ---- The other processes of this node ----

void Home::flux_changed(Segment& s, const std::shared_ptr<InvalidationRound>& p) {
  ++s.flux_version;
  s.flux_list.reset();
  for (Watcher& w : s.watchers) {
    for (const PageRange& r : s.in_flux.all()) w.covered.add(r);
    ++p->waiting;
    w.unacknowledged.push_back(p);
    w.born = now();
    unseen_lists_ = true;
    (void)send_list(s, w);  // where it does not come through, the timer repeats it
  }
}

// False: not sent.
bool Home::send_list(Segment& s, Watcher& w) {
  if (!s.flux_list) {
    Fd list(memfd_create("cmi-in-flux", MFD_CLOEXEC));
    const auto all = s.in_flux.all();
    const auto bytes = static_cast<ssize_t>(all.size() * sizeof(PageRange));
    if (!list || ::pwrite(list.get(), all.data(), static_cast<size_t>(bytes), 0) != bytes) {
      return false;
    }
    s.flux_list = std::move(list);
  }
  BusInFlux m;
  m.segment = s.id;
  m.version = s.flux_version;
  w.sent = now();
  const Status sent = parts_.node.bus_send(w.slot, Encoded(m), s.flux_list.get());
  if (sent == Status::kInval) w.seen = s.flux_version;  // it has ended: nothing to cover any more
  return ok(sent);
}

void Home::remind_watchers(Segment& s, Nanos t, Finished* done) {
  for (size_t i = 0; i < s.watchers.size();) {
    Watcher& w = s.watchers[i];
    // What lies unread in a stopped process's queue is not helped by copies.
    const bool late = t - w.sent > std::max(kRemind, w.sent - w.born);
    if (w.seen < s.flux_version && late) (void)send_list(s, w);
    if (w.seen < s.flux_version) {
      unseen_lists_ = true;
      ++i;
    } else if (!w.unacknowledged.empty()) {  // it has ended
      for (auto& p : w.unacknowledged) settle(p, done);
      s.watchers.erase(s.watchers.begin() + static_cast<ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

// False: it could not be told what is in flux now.
bool Home::add_watcher(Segment& s, node::ContextSlot slot) {
  auto w = std::find_if(s.watchers.begin(), s.watchers.end(),
                        [&](const Watcher& x) { return x.slot == slot; });
  if (w == s.watchers.end()) {
    s.watchers.push_back({slot, s.in_flux, s.flux_version, 0, 0, {}});
    w = std::prev(s.watchers.end());
  }
  // Datagrams of one sender stay in order: it has the list before it has the answer.
  return s.in_flux.empty() || send_list(s, *w);
}

void Home::on_list_seen(Segment& s, node::ContextSlot slot, uint64_t version, Finished* done) {
  for (Watcher& w : s.watchers) {
    if (w.slot != slot || version < s.flux_version) continue;
    w.seen = s.flux_version;
    // What it stored to pages that it has uncovered, before they were watched again.
    const auto back = s.in_flux.missing(w.covered.all());
    w.covered = s.in_flux;
    if (!back.empty() && s.shared()) publish_scan(s, back);
    for (auto& p : w.unacknowledged) settle(p, done);
    w.unacknowledged.clear();
  }
}

// In another process than the owner's. The file is not trusted.
void Home::take_list(Segment& s, uint64_t version, const Fd& list) {
  const auto pages = static_cast<uint32_t>(s.size / kPageSize);
  struct stat st {};
  if (version <= s.flux_version || ::fstat(list.get(), &st) != 0 || st.st_size < 0) return;
  const auto bytes = static_cast<size_t>(st.st_size);
  if (bytes % sizeof(PageRange) != 0 || bytes / sizeof(PageRange) > pages) return;
  std::vector<PageRange> ranges(bytes / sizeof(PageRange));
  if (::pread(list.get(), ranges.data(), bytes, 0) != static_cast<ssize_t>(bytes)) return;
  PageSet next;
  for (const PageRange& r : ranges) {
    if (r.first >= pages || r.count > pages - r.first) return;
    next.add(r);
  }
  if (!cover(s, s.in_flux.missing(next.all()))) {
    next.add({0, pages});
    (void)cover(s, {{0, pages}});
  }
  for (const PageRange& r : next.missing(s.in_flux.all())) {
    if (!uncover(s, r)) next.add(r);  // stays in flux here
  }
  s.in_flux = std::move(next);
  s.flux_version = version;
}

}  // namespace cmi::memory
