// The views of an import whose home is on the same machine: they map the home's own pages
// (doc/design/local.md). What this keeps is which pages were stored to and are not published yet.
//
// The views are watched as those of a cache are: a page that is not mapped faults, and so does the
// first store to one that is. A page is *stored* from that store on until take() protects it again,
// and *in flight* until the home has answered.
//
// Threads: any, the fault handler and the service thread too. mu_ guards everything but the mode;
// it is held over system calls that change mappings, never over a wait for a peer.
//
// Invariants, under mu_:
//  - a page that can be stored to through a view is in stored_, counts as dirty, and has its mark
//    in the file that the home reads when this process dies;
//  - a page that is stored or in flight has its mark in the file of the newest grant;
//  - no page is mapped without a grant, or by a process that the home has cut off;
//  - a page that leaves stored_ unannounced was protected before the home's word was read that
//    nobody caches pages of the segment.
#pragma once

#include <atomic>
#include <map>
#include <optional>
#include <vector>

#include "core/base/lock.hpp"
#include "core/memory/importer/dirty_count.hpp"
#include "core/memory/importer/flux_pages.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "core/memory/importer/read_streams.hpp"
#include "core/memory/importer/store_streams.hpp"
#include "core/memory/page/page.hpp"
#include "core/memory/page/page_set.hpp"
#include "core/memory/vm/local_control.hpp"
#include "core/memory/vm/userfault.hpp"

namespace cmi::memory {

// What the home has passed.
struct LocalGrant {
  Fd file;                // the segment's
  bool writable = false;  // else it is open for reading alone
  LocalControl control;
};

class LocalViews {
 public:
  bool local() const { return local_.load(std::memory_order_acquire); }
  // Words for people, of the library's own text: why the pages are cached. Null: nobody has asked.
  const char* why_cached() const { return why_cached_.load(std::memory_order_acquire); }
  void say_cached(const char* why) { why_cached_.store(why, std::memory_order_release); }
  // Held by the thread that asks the home for a grant, or gives up being local; never by the
  // service thread.
  Mutex join_mu CMI_ACQUIRED_BEFORE(lock_order::after_adoption);

  // Before there is a view, and before the home is asked. False: no descriptors.
  bool begin(uint32_t pages, DirtyCount& dirty);
  // A new view, at `addr` or anywhere. Ends the grant: the home has to know of each view. Null:
  // there is no room.
  std::byte* add(void* addr, bool read_only);
  void remove(const std::byte* addr);  // it is unmapped next
  // What lets the home protect the views, and where they are.
  int watch() const { return watch_.fd(); }
  std::vector<const std::byte*> addresses();
  // Whether the views map the segment's file, and may be stored through where that is `writable`.
  bool maps(bool writable);
  // They map this file from now on, an empty one until then. There is no grant in force, and no
  // other thread may access them meanwhile: between mapping and watching a store would go unseen.
  bool map_file(Fd file, bool writable);

  // The grant comes into force, for the views that it was asked for. False: there are others now.
  bool open(LocalControl control, const std::vector<const std::byte*>& views);
  // Nothing is mapped from here on, nor will be without another grant.
  void close();
  // Takes pages out of the views. Where a grant is in force they may be mapped again.
  void zap(const std::vector<PageRange>& pages);
  void zap_all() { zap({{0, pages_}}); }
  // The memory from this page on is going: zapped, and not stored any more.
  void drop_past(uint32_t first);

  // One look at a page for a fault on it, and what is done of that before mu_ is let go.
  enum class Page : uint8_t { kNoGrant, kProtected, kStored };
  class Opened {
   public:
    Page page() const { return page_; }
    // Maps the page, and some around it that may be mapped, protected: those behind it where loads
    // come in order. False: there is no memory behind it.
    bool map(Streams& loads, FluxPages& flux, uint32_t end) CMI_TSA(no_thread_safety_analysis);
    // Lets stores go on to the page, and to those after it in the window of stores in order.
    bool map_for_stores(StoreStreams& streams, FluxPages& flux, uint32_t end)
        CMI_TSA(no_thread_safety_analysis);
    // Swaps a word of the page, by one instruction of this processor. kNot: it cannot be done here.
    enum class Swapped : uint8_t { kNot, kLost, kMade };
    Swapped swap(size_t in_page, uint64_t expected, uint64_t desired, uint64_t* found)
        CMI_TSA(no_thread_safety_analysis);

   private:
    friend LocalViews;
    Opened(LocalViews& views, uint32_t index, Page page)
        : views_(views), index_(index), page_(page) {}
    LocalViews& views_;
    const uint32_t index_;
    const Page page_;
  };
  template <class Use>
  auto look(uint32_t page, Use use) {
    Guard g(mu_);
    if (open_ && control_.is_cut_off()) close_locked();
    Opened opened(*this, page,
                  !open_                   ? Page::kNoGrant
                  : stored_.contains(page) ? Page::kStored
                                           : Page::kProtected);
    return use(opened);
  }

  // Whether there is no memory behind the page because the home's is broken.
  bool broken(uint32_t page);

  bool any_stored() const { return any_stored_.load(std::memory_order_seq_cst); }
  bool any_in_flight();
  // What was stored to since the last call. It is protected, and in flight until answered().
  // kBarrier, kTimer: where nobody caches pages of the segment nothing has to be announced, and
  // this is empty. Pages that are stored to again and again stay writable until the timer comes.
  enum class Taker : uint8_t { kBarrier, kTimer, kOther };
  std::vector<PageRange> take(Taker taker);
  // Whether a barrier would find nothing to protect or to announce: here, or in any import.
  bool published();
  bool all_published();
  void answered(const std::vector<PageRange>& pages);
  // Nothing that was stored to these is on its way, or will be.
  bool settled(PageRange pages);

  // The views are none of these any more: `map` maps each anew, then `fill` gives them something to
  // show, before an access is served as one to the new ones. False: one of them has failed.
  template <class Map, class Fill>
  bool end(Map map, Fill fill) {
    Guard g(mu_);
    close_locked();
    for (const Mapped& view : views_) {
      if (!view.swaps && !map(view.at)) return false;
    }
    if (!fill()) return false;
    views_.clear();
    swaps_.reset();
    local_.store(false, std::memory_order_release);
    return true;
  }

 private:
  struct Mapped {
    std::byte* at;
    bool read_only;  // nothing may be stored through it
    bool swaps;      // the one of the library's own, through which swaps are made
  };
  void close_locked() CMI_REQUIRES(mu_);
  void zap_locked(PageRange pages) CMI_REQUIRES(mu_);
  std::byte* map_view(void* addr, int how) CMI_REQUIRES(mu_);
  bool has_mappings_left() CMI_REQUIRES(mu_);
  bool map_locked(std::byte* view, PageRange pages, bool writable) CMI_REQUIRES(mu_);
  void note_store(uint32_t page) CMI_REQUIRES(mu_);
  void forget_stores(PageRange pages) CMI_REQUIRES(mu_);
  bool let_store(uint32_t page, bool mapped) CMI_REQUIRES(mu_);
  void let_store_ahead(PageRange pages) CMI_REQUIRES(mu_);
  bool show_for_swaps(uint32_t page, bool writable) CMI_REQUIRES(mu_);
  bool alone() CMI_REQUIRES(mu_);
  std::vector<PageRange> protect_stored(bool hot) CMI_REQUIRES(mu_);
  void forget_published(const std::vector<PageRange>& pages, Taker taker) CMI_REQUIRES(mu_);
  bool map_protected(PageRange pages) CMI_REQUIRES(mu_);
  bool map_ahead(PageRange pages) CMI_REQUIRES(mu_);
  void clear_mark(uint32_t page) CMI_REQUIRES(mu_);

  std::atomic<bool> local_{false};
  std::atomic<const char*> why_cached_{nullptr};
  // Set by begin().
  uint32_t pages_ = 0;
  DirtyCount* dirty_ = nullptr;
  Userfault watch_;

  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_tables)
      CMI_ACQUIRED_BEFORE(lock_order::after_import_views);
  std::vector<Mapped> views_ CMI_GUARDED_BY(mu_);
  Fd file_ CMI_GUARDED_BY(mu_);  // what the views map
  bool mapped_ CMI_GUARDED_BY(mu_) = false, writable_ CMI_GUARDED_BY(mu_) = false;
  // Of the file, never touched: the memory behind pages is asked for there.
  Mapping behind_ CMI_GUARDED_BY(mu_);
  bool open_ CMI_GUARDED_BY(mu_) = false;
  LocalControl control_ CMI_GUARDED_BY(mu_);
  // Mapped in all views when they were last looked at: the kernel may have taken them out since.
  PageSet there_ CMI_GUARDED_BY(mu_);
  PageSet stored_ CMI_GUARDED_BY(mu_);
  std::map<uint32_t, uint32_t> in_flight_ CMI_GUARDED_BY(mu_);  // page: announcements of it
  std::atomic<bool> any_stored_{false};                         // stored under mu_
  // Published without an announcement since the timer's last look, and stored to again since.
  PageSet recent_ CMI_GUARDED_BY(mu_), hot_ CMI_GUARDED_BY(mu_);
  // Pages of stored_, and those of them that are not in hot_.
  uint64_t stored_count_ CMI_GUARDED_BY(mu_) = 0, cold_count_ CMI_GUARDED_BY(mu_) = 0;
  // In the view for swaps: pages that are mapped, and those of them that can be stored to.
  Mapping swaps_ CMI_GUARDED_BY(mu_);
  PageSet shown_ CMI_GUARDED_BY(mu_), swappable_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::memory
