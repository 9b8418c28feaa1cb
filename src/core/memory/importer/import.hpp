// An imported segment in this process: its cache, its views, what is dirty, and whether it may be
// used. Each member owns its data and keeps its own invariant.
//
// Locks, in this order: views.mu, page locks (ascending), then the leaves: those of `dirty`,
// `flux`, `grant`, `subscribed` and `in_order`, and the twin pool's. views.mu is held briefly: it
// only guards the list; a page's mappings in all views change under that page's lock. No lock here
// is held over a network wait but those of `token` and `regions`, which application threads alone
// take.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "core/access/handles.hpp"
#include "core/base/clock.hpp"
#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "core/memory/importer/cache_file.hpp"
#include "core/memory/importer/change_wait.hpp"
#include "core/memory/importer/contended_pages.hpp"
#include "core/memory/importer/dirty_list.hpp"
#include "core/memory/importer/flux_pages.hpp"
#include "core/memory/importer/grant.hpp"
#include "core/memory/importer/hot_pages.hpp"
#include "core/memory/importer/known_break.hpp"
#include "core/memory/importer/late_intents.hpp"
#include "core/memory/importer/local_views.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "core/memory/importer/quiesce_rounds.hpp"
#include "core/memory/importer/read_streams.hpp"
#include "core/memory/importer/reads_under_way.hpp"
#include "core/memory/importer/region_claims.hpp"
#include "core/memory/importer/session_key.hpp"
#include "core/memory/importer/store_streams.hpp"
#include "core/memory/importer/token_in_use.hpp"
#include "core/memory/importer/unused_intents.hpp"
#include "core/memory/importer/write_behind_turn.hpp"
#include "core/memory/page/page_costs.hpp"
#include "core/memory/page/stats.hpp"
#include "core/memory/page/update_protocol.hpp"
#include "core/memory/vm/view_table.hpp"
#include "core/memory/wire/notifications.hpp"
#include "fabric/link.hpp"

namespace cmi::memory {

// How long an access that was refused because of a break that is not known here waits for the
// notification, before it tries again.
inline constexpr Nanos kBreakNap = 10 * kMilli;

// Set before anybody else knows the import, and never changed.
struct ImportFacts {
  int32_t id = 0;         // proxy's segment id on this node
  uint32_t instance = 0;  // names this import toward the home; unique in this process
  access::RsegInfo rseg;
  uint32_t pages = 0;
  bool write_through = false;  // nothing is cached, `cache` is never ready
  bool extensible = false;
  bool intents = false;  // client-inconsistent: the home knows which pages are stored to (rule 21)
  bool ours = false;     // imported by this process for its node; others of the node only attach it
  std::shared_ptr<fabric::Link> link;
};

// Whether events of this context name the import, and what they say of peace on it.
struct ImportEvents {
  // seg_imp has succeeded, or will: from then on events name it. Stored under the lock of Losses,
  // before the end of the home is reported.
  std::atomic<bool> made{false};
  // Marked for deletion, here or at home: no event names it any more.
  std::atomic<bool> marked{false};
  QuiesceRounds quiesce;

  bool named() const { return made.load() && !marked.load(); }
};

struct ImportStats : SegmentStats {
  PageCosts pages;  // those that cost most
};

struct ImportViewList {
  Mutex mu CMI_ACQUIRED_AFTER(lock_order::after_tables)
      CMI_ACQUIRED_BEFORE(lock_order::after_import_views);
  std::vector<std::shared_ptr<const View>> list CMI_GUARDED_BY(mu);
  // Where the home is on this machine, what they map instead of a cache. It has a lock of its own.
  LocalViews local;
};

// A page that is dirty, and no thread's to write back, is in `listed` or in `hot`.
struct DirtyPages {
  DirtyList listed;  // protected when they are written back
  HotPages hot;
  ContendedPages contended;  // service thread alone
  UnusedIntents unused_intents;
  LateIntents late_intents;

  bool none() { return hot.empty() && listed.empty(); }
};

// Loads and stores that go on in order, and what is done ahead of them and behind.
struct InOrder {
  Streams loads;
  ReadsUnderWay reads;
  StoreStreams stores;
  WriteBehindTurn write_behind;
};

// Once it is over the home may have declared us dead: nothing may be mapped. Looked at under a
// page's lock; noted first, and the mappings taken after.
class Lease {
 public:
  // By the clock, or noted by the service thread. Fault handler safe.
  bool is_over() const { return is_over_at(now_or_a_tick_ago()); }
  bool is_over_at(Nanos t) const {
    return expired_.load(std::memory_order_seq_cst) || t >= ends_.load(std::memory_order_relaxed);
  }
  void set_expired(bool expired) { expired_.store(expired, std::memory_order_seq_cst); }
  void set_end(Nanos at) { ends_.store(at, std::memory_order_relaxed); }

 private:
  std::atomic<bool> expired_{false};
  std::atomic<Nanos> ends_{INT64_MAX};  // by now(); never: there is no lifeline
};

// Size: the facts of an import, which never change, and one object for each thing that does, with
// its own lock.
struct Import : ImportFacts, std::enable_shared_from_this<Import> {
  explicit Import(ImportFacts facts = {}) : ImportFacts(std::move(facts)) {}
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;

  ImportStats stats;
  ImportEvents events;
  CacheFile cache;
  RegionClaims regions;
  SubscribedPages subscribed;
  Grant grant;
  Lease lease;
  TokenInUse token;
  SessionKey key;
  // FeaturesPart of the home.
  std::atomic<uint32_t> features{0};
  KnownBreak brk;  // pages before the break: all, unless the segment is extensible
  ImportViewList views;
  DirtyPages dirty;
  FluxPages flux;
  InOrder in_order;
  ChangeWait changes;

  bool home_takes(uint32_t feature) const {
    return (features.load(std::memory_order_relaxed) & feature) != 0;
  }
  bool allows(uint32_t page) const { return grant.allows(page); }
  Page& page(uint32_t index) const { return cache.page(index); }
  std::byte* page_data(uint32_t page) const { return cache.data(page); }
  // Around an operation with the session key on pages before `end`. False: not with this key, not
  // now, or past the break.
  [[gnu::hot]] bool begin_use(uint32_t generation, const fabric::RemoteKey& k, uint64_t end) {
    return key.begin_use(generation, k, [&] {
      return grant.state() == ImportState::kUsable && end <= brk.load(std::memory_order_seq_cst);
    });
  }
};

// The page of the import that an address of its view lies on.
inline uint32_t page_of(const View& view, const std::byte* addr) {
  return static_cast<uint32_t>(static_cast<size_t>(addr - view.addr) / kPageSize);
}

}  // namespace cmi::memory
