// An imported segment in this process: its cache file, its pages, its views, what is dirty, and
// whether it may be used.
//
// Locks, in this order: views_mu, page locks (ascending), then the leaves dirty_mu,
// flux_mu, those of `grant`, `reads`, `subscribed`, `streams` and `stores`, and the twin pool's.
// views_mu is held shared-like and briefly: it only guards the list; a page's mappings in all views
// change under that page's lock. No lock here is held over a network wait.
//
// No-fault rule: the library touches pages through `service` only, never through a view.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "core/access/handles.hpp"
#include "core/base/fd.hpp"
#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "core/memory/importer/contended_pages.hpp"
#include "core/memory/importer/grant.hpp"
#include "core/memory/importer/hot_pages.hpp"
#include "core/memory/importer/known_break.hpp"
#include "core/memory/importer/read_streams.hpp"
#include "core/memory/importer/reads_under_way.hpp"
#include "core/memory/importer/store_streams.hpp"
#include "core/memory/page/directory.hpp"
#include "core/memory/page/page.hpp"
#include "core/memory/page/page_set.hpp"
#include "core/memory/page/stats.hpp"
#include "core/memory/page/update_protocol.hpp"
#include "core/memory/vm/view_table.hpp"
#include "core/memory/wire/notifications.hpp"
#include "fabric/link.hpp"

namespace cmi::memory {

// How long who has been refused because of a break that it has not heard of waits for the
// notification, before it tries again.
inline constexpr Nanos kBreakNap = 10 * kMilli;

struct Import : std::enable_shared_from_this<Import> {
  Import() = default;
  ~Import();
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;

  int32_t id = 0;         // proxy's segment id on this node
  uint32_t instance = 0;  // names this import toward the home; unique in this process
  access::RsegInfo rseg;
  uint32_t pages = 0;
  bool write_through = false;  // write-through: nothing is cached, `ready` stays false
  bool intents = false;  // client-inconsistent: the home knows which pages are stored to (rule 21)
  std::shared_ptr<fabric::Link> link;
  bool ours = false;  // imported by this process for its node; others of the node only attach it
  // seg_imp has succeeded, or will: from then on events name it. Stored under
  // Importer::observer_mu_, before the end of the home is told.
  std::atomic<bool> made{false};
  // Marked for deletion, here or at home: no event names it any more.
  std::atomic<bool> marked{false};
  std::atomic<uint32_t> quiesce_round{0};  // the newest that the home told; service thread alone
  std::atomic<bool> quiesced{false};       // since that round; service thread alone

  SegmentStats stats;

  // Set by the first attach, then constant.
  Fd file;
  Mapping service;
  Page* table = nullptr;  // `pages` entries, zero pages of an anonymous mapping at first
  Mapping table_memory;
  ImportRegions regions;
  SubscribedPages subscribed;
  std::atomic<bool> ready{false};         // stored with release once the above is there
  std::atomic<bool> taking_break{false};  // a notification about the break is being carried out

  Grant grant;
  bool allows(uint32_t page) const { return grant.allows(page); }
  // The home may have declared us dead: nothing may be mapped. Looked at under a page's lock; set
  // first, and the mappings taken after.
  std::atomic<bool> lease_expired{false};

  Mutex token_mu;  // held over a request to the home: never taken by the service thread
  access::TokenInfo token CMI_GUARDED_BY(token_mu);
  Mutex adopt_mu;  // outside token_mu; application threads only
  // Id of the token that the home has last taken: what it refuses, it refuses to that one.
  std::atomic<uint64_t> presented_id{0};

  // Of the token in the registry that this process took over last; see Importer::adopt_token.
  uint64_t adopted_version CMI_GUARDED_BY(adopt_mu) = 0;
  uint32_t presented CMI_GUARDED_BY(token_mu) = 0;  // generation of the link that last saw a token
  // The session key, valid in one generation of the link.
  std::atomic<uint32_t> key_generation{0};
  std::atomic<uint64_t> key{0}, key_base{0};

  Mutex acquire_mu;  // held over a request, as token_mu; application threads only
  uint32_t acquire_epoch CMI_GUARDED_BY(acquire_mu) = 0;

  // Operations that carry the session key; a revocation is answered when it has fallen to zero, and
  // a new key is only asked for then. `keys` counts those that were asked for.
  std::atomic<int> using_key{0};
  std::atomic<uint32_t> keys{0};
  // Around one that uses pages before `end`. False: not with this key, not now, or past the break.
  bool begin_use(uint32_t generation, const fabric::RemoteKey& key, uint64_t end);
  void end_use() { using_key.fetch_sub(1, std::memory_order_seq_cst); }

  KnownBreak brk;  // pages before the break: all, unless the segment is extensible
  bool extensible = false;

  Mutex views_mu;
  std::vector<std::shared_ptr<const View>> views CMI_GUARDED_BY(views_mu);

  Mutex dirty_mu;
  // Pages that are protected when they are written back, in order of first store.
  std::deque<uint32_t> dirty CMI_GUARDED_BY(dirty_mu);
  size_t aged CMI_GUARDED_BY(dirty_mu) = 0;  // the first so many were there a tick ago
  HotPages hot;
  ContendedPages contended;  // service thread alone

  // Pages that the home has told to be in flux. Before one of them is accessed the home is asked
  // whether it has been recovered since, so nothing has to tell us that.
  Mutex flux_mu;
  PageSet in_flux CMI_GUARDED_BY(flux_mu);
  uint64_t flux_notices CMI_GUARDED_BY(flux_mu) = 0;
  std::atomic<bool> any_in_flux{false};  // stored under flux_mu
  bool is_in_flux(uint32_t page);

  // The cache: its size as it was set, the same in pages (UINT32_MAX: no limit), pages that take
  // memory, and where the sweep for those to give back goes on.
  std::atomic<size_t> cache_bytes{0};
  std::atomic<uint32_t> cache_limit{UINT32_MAX}, backed{0}, hand{0};
  std::atomic<bool> unreserved{false};  // memory is asked for page by page: it was given back once

  Streams streams;
  StoreStreams stores;
  // Who stores in order takes home what is behind him: one at a time, and not before then.
  std::atomic<bool> writing_behind{false};
  std::atomic<Nanos> no_room_before{0};
  ReadsUnderWay reads;

  // Waiters for pages that another thread is fetching or writing nap on this word.
  std::atomic<uint32_t> changes{0};
  std::atomic<int> change_waiters{0};
  void changed();
  void wait_for_change(uint32_t seen, Nanos span);

  std::byte* page_data(uint32_t page) const { return service.data() + size_t{page} * kPageSize; }
};

}  // namespace cmi::memory
