// A segment of this node in this process, as the home's side knows it, and its views.
//
// The owner is the process that made the segment. Other processes of the node attach the same file;
// they register their views with the owner over the node bus.
//
// Three locks, in this order: `mu`, `views_mu`, HomeCore::mu (doc/design/locking.md). Long work,
// such as applying diffs and scanning, holds one of the first two alone. What each member says:
//   [all]     changed under all three, so that each of them is enough to read it
//   [memory]  mu, also for its changes;  [views]  views_mu;  [rounds]  HomeCore::mu
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/access/handles.hpp"
#include "core/base/fd.hpp"
#include "core/base/handover_mutex.hpp"
#include "core/memory/home/flux_watchers.hpp"
#include "core/memory/home/lock_order.hpp"
#include "core/memory/home/sharer_table.hpp"
#include "core/memory/home/token_table.hpp"
#include "core/memory/page/directory.hpp"
#include "core/memory/page/page_costs.hpp"
#include "core/memory/page/page_set.hpp"
#include "core/memory/vm/view_table.hpp"
#include "core/node/node.hpp"

namespace cmi::memory {

struct HomeView {
  std::byte* addr = nullptr;
  size_t len = 0;
  bool read_only = false;
  bool armed = false;                // stores are noted, by the kernel or in view->stores
  std::shared_ptr<const View> view;  // for the fault handler
  // Memory of the client's own. `gone`: what it has unmapped or mapped anew, as far as we know.
  bool adopted = false, locked = false;
  size_t page = kPageSize;  // of its memory: what is mapped, protected and noted as one
  size_t mapped() const { return (len + page - 1) / page * page; }
  bool moving = false;   // it is still being made one
  bool leaving = false;  // it is being given back: mapped by the thread that does that alone
  PageSet gone;
  // Those of the ranges that are still ours.
  std::vector<PageRange> here(const std::vector<PageRange>& ranges) const {
    return gone.empty() ? ranges : gone.missing(ranges);
  }
};

struct ForeignView {  // of another process of this node
  node::ContextSlot slot{};
  ContextId process;  // another one may sit there later, and attach at the same address
  uint64_t addr = 0, len = 0;
  Fd pagemap;
};

// Set when the segment is made or first attached, and never changed.
struct SegmentFacts {
  int32_t id = 0;
  uint64_t uid = 0;  // at the owner; elsewhere 0
  uint64_t size = 0;
  int32_t flags = 0;
  node::ContextSlot owner{};
  bool owned = false;                                               // by this process
  size_t page_size() const { return access::page_size_of(flags); }  // of its memory
};

// Size: handlers hold one of three locks and use most fields together, so the fields are marked
// with the locks that guard them. What has an invariant of its own is a class: the tables, PageSet,
// FluxWatchers, Directory, PageWriters. Structs by lock would part what one handler changes at
// once.
struct Segment : SegmentFacts {
  // Held over what importers ask for, with the application of their diffs.
  Mutex mu CMI_ACQUIRED_AFTER(lock_order::after_breaks)
      CMI_ACQUIRED_BEFORE(lock_order::after_memory);
  // Held over scans, faults on views at home, covering of pages.
  HandoverMutex views_mu CMI_ACQUIRED_AFTER(lock_order::after_memory)
      CMI_ACQUIRED_BEFORE(lock_order::after_views);

  // Out of the table: a thread that has waited for a lock looks again.
  std::atomic<bool> erased{false};
  bool removed = false;  // [all]
  struct {
    bool any = false;
    bool cached = false, write_through = false;  // how it may be imported
  } exported;                                    // [all]
  // [all] At the owner; elsewhere the file's end is the break. Service views are accessed before it
  // alone, under one of the locks at the owner, and under the node's lock elsewhere.
  Break brk;
  Fd file;                       // [all]
  Mapping service;               // [all]
  TokenTable tokens;             // [memory] and [rounds]: either is enough to read it
  SharerTable sharers;           // [memory] and [rounds], but for what Sharer says
  std::vector<ContextId> keyed;  // [memory] clients that have had a session key
  // [memory] and [rounds]: slots of pages that some importer subscribes to, or has
  uint64_t subscribed = 0;
  Directory directory;               // [rounds]
  std::vector<HomeView> views;       // [views]
  std::vector<ForeignView> foreign;  // [views]
  uint32_t timer_at = 0;             // page where the timer's scan goes on; the service thread's
  struct {
    PageSet pages;          // [all] covered in our views; at the owner the truth
    FluxWatchers watchers;  // [views] at the owner
    Fd list;                // [views] of that version, for the watchers
    // [views] Elsewhere: the version that `pages` is of, and the one of which the owner is yet to
    // hear; 0: none.
    uint64_t version = 0, unreported = 0;
  } flux;
  struct {
    uint64_t publications = 0, notifications = 0;  // so far: of its pages, and messages of them
  } counts;                                        // [rounds]
  PageWriters writers;                             // has a lock of its own, a leaf
  struct {
    bool on = false;
    bool unacknowledged = false;                   // our own client has not said that it stopped
    bool notified = false;                         // our own client was, and of no resume since
    uint32_t round = 0;                            // raised by each change
    std::vector<std::function<void()>> quiescent;  // to run when no answer is missing
  } quiesce;                                       // [rounds]

  // Somebody may have cached pages of it. Under HomeCore::mu.
  bool shared() const {
    return !removed && std::any_of(sharers.begin(), sharers.end(),
                                   [](const Sharer& h) { return h.loads() && !h.write_through; });
  }
  uint32_t pages() const { return static_cast<uint32_t>(size / kPageSize); }
};

// The import must drop what it has from this byte on, although that may lie before the break: it
// did not acknowledge a lower break in time. The break itself: nothing is to be dropped. Until the
// import has acknowledged the newest break it gets no key, and its stores from here on are old ones
// and are dropped. Under HomeCore::mu.
inline uint64_t low_of(const Segment& s, const Sharer& h) {
  return std::min(h.brk.low, s.brk.bytes);
}

using SegmentPtr = std::shared_ptr<Segment>;

}  // namespace cmi::memory
