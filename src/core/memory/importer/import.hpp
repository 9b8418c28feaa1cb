// An imported segment in this process: its cache file, its pages, its views, what is dirty, and
// whether it may be used.
//
// Locks, in this order: views_mu, page locks (ascending), then the leaves dirty_mu, ahead_mu,
// flux_mu, those of `followed`, `streams` and `stores`, and the twin pool's. views_mu is held
// shared-like and briefly: it only guards the list; a page's mappings in all views change under
// that page's lock. No lock here is held over a network wait.
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
#include "core/memory/importer/hot_pages.hpp"
#include "core/memory/importer/read_streams.hpp"
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

// Whether accesses may go on. Rises only, but for a new token, which brings kUsable back from
// kNoToken and kRevoked.
enum class ImportState : uint8_t {
  kNoToken,  // none set yet: TOKEN
  kUsable,
  kRevoked,  // TOKEN
  kRemoved,  // marked for deletion at home, which still has it attached: TOKEN
  kGone,     // home dead or segment gone: SINVAL
};

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

  std::atomic<ImportState> state{ImportState::kNoToken};
  std::atomic<uint32_t> rights{0};
  // The pages that the token is for: from this one to the one before that.
  std::atomic<uint32_t> first_page{0}, end_page{0};
  bool allows(uint32_t page) const {
    return page >= first_page.load(std::memory_order_acquire) &&
           page < end_page.load(std::memory_order_acquire);
  }
  // How often the process that imported the segment has said that it set another token, and up to
  // which of these that token is ours: between the two nothing may be accessed.
  std::atomic<uint32_t> tokens_notified{0}, tokens_taken{0};
  // The home may have declared us dead: nothing may be mapped. Looked at under a page's lock; set
  // first, and the mappings taken after.
  std::atomic<bool> lease_expired{false};

  Mutex token_mu;  // held over a request to the home: never taken by the service thread
  access::TokenInfo token CMI_GUARDED_BY(token_mu);
  Mutex adopt_mu;  // outside token_mu; application threads only
  // A token that ends against one that comes. What a home has said of an older token closes nothing
  // under a newer one, and under that nothing is accessed before the end of the older one has taken
  // all pages: else it would take stores of the newer one with it. A leaf.
  Mutex verdict_mu;
  uint32_t sweeps CMI_GUARDED_BY(verdict_mu) = 0;  // that take all pages just now
  std::atomic<uint64_t> token_id{0};  // of `token`, stored under verdict_mu with the state
  // Of the one that the home has last taken: what it refuses it refuses to that.
  std::atomic<uint64_t> presented_id{0};

  // While one takes all pages. Counted by who has verdict_mu.
  class Sweep {
   public:
    explicit Sweep(Import& imp) CMI_REQUIRES(imp.verdict_mu) : imp_(imp) { ++imp.sweeps; }
    ~Sweep() {
      Guard g(imp_.verdict_mu);
      --imp_.sweeps;
    }
    Sweep(const Sweep&) = delete;
    Sweep& operator=(const Sweep&) = delete;

   private:
    Import& imp_;
  };
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

  // Pages before the break: all, unless the segment is extensible. Looked at under a page's lock,
  // as `lapsed` is.
  std::atomic<uint32_t> brk{0};
  bool extensible = false;
  Mutex brk_mu;
  uint32_t brk_round CMI_GUARDED_BY(brk_mu) = 0;  // of the newest that was heard of
  uint32_t brk_high CMI_GUARDED_BY(brk_mu) = 0;   // no page from here on was ever taken in

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

  // Reads that nobody waited for when they were started.
  struct Ahead {
    PageRange pages;
    std::weak_ptr<fabric::Session> session;
    fabric::Op done;  // the pages have left kFetching
  };
  Streams streams;
  StoreStreams stores;
  // Who stores in order takes home what is behind him: one at a time, and not before then.
  std::atomic<bool> writing_behind{false};
  std::atomic<Nanos> no_room_before{0};
  Mutex ahead_mu;
  std::vector<std::shared_ptr<Ahead>> aheads CMI_GUARDED_BY(ahead_mu);

  // Waiters for pages that another thread is fetching or writing nap on this word.
  std::atomic<uint32_t> changes{0};
  std::atomic<int> change_waiters{0};
  void changed();
  void wait_for_change(uint32_t seen, Nanos span);

  std::byte* page_data(uint32_t page) const { return service.data() + size_t{page} * kPageSize; }
};

}  // namespace cmi::memory
