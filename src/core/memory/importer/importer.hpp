// The importing side of the coherence protocol: fetches, twins, write-backs, invalidations, CAS.
// One per context; doc/design/protocol.md names the rules that the comments refer to.
//
// Files, by what happens: importer.cpp (imports, tokens), import_views.cpp, grant.cpp (what the
// home lets them do), fault.cpp, fault_service.cpp and fetch.cpp (faults), prefetch.cpp (reads
// ahead), write_stream.cpp and write_behind.cpp (stores in order), dirty_intents.cpp (pages in
// flux), enter_pages.cpp (pages that were released), cache.cpp (its size), collector.cpp and
// write_back.cpp (batches, barriers, timer), notifications.cpp and page_drops.cpp (what homes say),
// updates.cpp (pages that are subscribed to), swap.cpp, write_through.cpp (write-through imports),
// import_break.cpp (extensible segments), import_quiesce.cpp, losses.cpp (reports of failures),
// lease.cpp (homes that are lost or out of sight), leave.cpp (the end of imports).
//
// Owners of data, each with its lock: links.hpp, loss_reporter.hpp, pending_answers.hpp,
// pending_stores.hpp; of one import: grant.hpp, known_break.hpp, reads_under_way.hpp,
// read_streams.hpp, store_streams.hpp.
//
// Threads: faults and calls come from application threads, in parallel; notices, ticks and answers
// to asynchronous requests from the service thread; answers also from whichever application thread
// polls. The order of the locks stands in doc/design/locking.md. None is held over a network wait
// but TokenInUse::mu, its adopt_mu and RegionClaims::mu, which application threads alone take.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "core/access/handles.hpp"
#include "core/base/cpu_share.hpp"
#include "core/liveness/peer_watch.hpp"
#include "core/memory/importer/import.hpp"
#include "core/memory/importer/links.hpp"
#include "core/memory/importer/loss_reporter.hpp"
#include "core/memory/importer/pending_answers.hpp"
#include "core/memory/importer/pending_stores.hpp"
#include "core/memory/importer/pending_swaps.hpp"
#include "core/memory/page/local_imports.hpp"
#include "core/memory/page/observer.hpp"
#include "core/memory/page/stats.hpp"
#include "core/memory/page/twin_pool.hpp"
#include "core/memory/vm/exception.hpp"
#include "core/memory/vm/import_faults.hpp"
#include "core/memory/vm/userfault.hpp"
#include "core/memory/vm/view_table.hpp"
#include "core/node/context_report.hpp"
#include "core/node/node.hpp"
#include "fabric/link.hpp"
#include "fabric/local_interface.hpp"
#include "fabric/server.hpp"

namespace cmi::memory {

// How long who waits for homes goes on: until the deadline, and for `span` after whatever shows
// that what is waited for moves on. What is given up then is lost, and told.
struct Patience {
  Deadline deadline;
  Nanos span = 0;  // 0: the deadline is final, and nothing is given up
  // A home that answers other requests, or says that it is at work, is given more spans, no more
  // than these.
  static constexpr int kMostSpans = 3;
  static Patience of(Nanos span) { return {Deadline::in(span), span}; }
  Deadline next() const {
    return span == 0 ? deadline : Deadline{std::max(deadline.at, now() + span)};
  }
};

// For an import: until when a home that cannot be reached is tried, and how long one that can be is
// given to answer. An import waits its turn at a home that has much to do.
struct JoinTime {
  Deadline reach;
  Deadline answer;
};

class Importer final : public ImportFaults, public LocalImports {
 public:
  struct Parts {
    node::Node& node;
    const std::vector<fabric::LocalInterface>&
        interfaces;  // the listeners of `server`, in their order
    fabric::Server& server;
    fabric::Identity self;
    ViewTable& views;
    Stats& stats;
    liveness::PeerWatch& watch;
    bool fault_threads;  // userfault() is read by threads; else faults come as SIGBUS
    Observer& observer;
  };
  static Result<std::unique_ptr<Importer>> open(Parts parts);
  ~Importer();

  // Asks the home for the segment. kInval: nobody listens there any more, or it no longer has it.
  // kReconfig: it does not answer, for longer than first contacts should take. kNoMem: no endpoint
  // can be had here. `ours`: this process has imported it for its node, so its client is told what
  // happens to it.
  Result<std::shared_ptr<Import>> import(const access::RsegInfo& rseg, int32_t id, bool ours,
                                         const JoinTime& time);
  // Makes the token the one in use. kPerm: another node's. kInval: another segment's, or it would
  // need write-through. A token that the home has revoked is taken: accesses then raise TOKEN.
  Status set_token(const std::shared_ptr<Import>& imp, const access::TokenInfo& token,
                   Deadline deadline);
  // cmi_enb of one thread changed. Views are closed while no thread is enabled. Throws bad_alloc.
  void thread_enabled(bool enabled);
  // Around serving a fault of another thread: whether that one is enabled. Views are not closed
  // between the two, so that nothing is mapped after.
  bool begin_serving(pid_t thread) override;
  bool begin_serving();  // for what nobody asked for: is anybody enabled?
  void end_serving() override { serving_.fetch_sub(1, std::memory_order_release); }
  // The cache file and its tables; once.
  Status prepare(Import& imp, bool reserve);
  Result<std::shared_ptr<const View>> attach(const std::shared_ptr<Import>& imp, void* addr,
                                             bool read_only);
  void detach(const std::shared_ptr<const View>& view, Deadline deadline);
  // Writes back and tells the home; for the end of an import. Views must be gone.
  void leave(const std::shared_ptr<Import>& imp, const Patience& patience);
  // The same for all imports of a context that ends.
  void leave_all(const std::vector<std::shared_ptr<Import>>& imports, const Patience& patience);
  // The process that imported the segment for this node has set another token: nothing is accessed
  // under the old one when this returns. Service thread.
  void token_changed(int32_t id) override;
  // 0: no import that this process made, or one that is marked for deletion.
  uint32_t pages_of_ours(int32_t id) override;
  // The registry's token of this version is the one that the import has.
  void took_token(Import& imp, uint64_t version);

  // Bytes that cached pages of the import may take. What is more goes before this returns.
  void set_cache_size(const std::shared_ptr<Import>& imp, size_t bytes);

  // A fault at `addr` of `view`. kNone: the access may be tried again.
  // `seen`: the page as it was while the thread that faulted was waiting, if that is another one
  // (see glimpse()). A store that may be over by now is left alone: its thread faults anew if not.
  Exception serve(const View& view, const std::byte* addr, bool write, const PageSeen* seen,
                  Deadline deadline);
  // For who reads other threads' faults. A fault that can be read is one whose thread waits, but
  // it may go on at any time after that: how many times a page has been dirty no more, asked for
  // before it is read, tells whether the page is still as it was then. None: it may not be.
  uint64_t cleaned() const override { return cleaned_.load(std::memory_order_acquire); }
  std::optional<PageSeen> snapshot(const View& view, const std::byte* addr,
                                   uint64_t cleaned) const override;

  // Accesses to write-through imports, made at home. kNone: done. A store whose answer has not come
  // is left in *owed, and what is there already, if it is the same, is awaited instead of started.
  Exception load_write_through(const View& view, uint64_t offset, std::byte* to, size_t len,
                               Deadline deadline);
  // `written`: a byte for each, zero where nothing is stored; null: all are.
  Exception store_write_through(const View& view, uint64_t offset, const std::byte* from,
                                size_t len, const uint8_t* written, PendingStore* pending,
                                Deadline deadline);
  Exception swap_write_through(const View& view, uint64_t offset, const std::byte* expected,
                               const std::byte* desired, size_t len, std::byte* found,
                               PendingStore* pending, Deadline deadline);
  // Whether such an access is let through, as far as it is known here.
  Exception may_write_through(const View& view, uint64_t offset, size_t len, bool read, bool write,
                              Deadline deadline);
  // Before a swap is computed: one that the same instruction has left is awaited. *happened: it has
  // taken effect on what is put into `old`, and swap_write_through() will find its answer.
  Exception settle_swap(const View& view, uint64_t offset, std::byte* old, size_t len,
                        PendingStore& pending, bool* happened, Deadline deadline);
  // What the last such accesses of threads have left.
  PendingStores& pending_stores() { return pending_; }

  // With fault_threads: what cannot be served ends in the faulting thread, which gets a SIGBUS when
  // its page is poisoned, and then no longer has it so.
  Userfault& userfault() override { return userfault_; }
  void poison(const View& view, const std::byte* addr) override;
  void unpoison(const View& view, const std::byte* addr) override;

  // Everything dirty at entry is at its home, seen by all, when this returns kOk.
  Status barrier(LossMark& mark, const Patience& patience);
  // Goes on for `span` after whatever shows that it moves on, the end of the sending first.
  Status barrier(LossMark& mark, Nanos span) { return barrier(mark, Patience{{}, span}); }
  // The same for the pages that hold the addresses. *failed: what the first address that cannot be
  // accessed raises, and its index.
  Status flush(const std::vector<std::pair<std::shared_ptr<const View>, const std::byte*>>& where,
               LossMark& mark, const Patience& patience, Exception* failed, size_t* failed_at);
  LossMark losses() const { return losses_.mark(); }

  // Homes that segments are imported from, each with a question on its way; see
  // engine/probe_all.hpp.
  struct Asked {
    access::NaddrInfo who;
    fabric::ListenerAddress listener;
    std::shared_ptr<fabric::Link> link;
    std::shared_ptr<fabric::Request> request;  // null: dead already
  };
  std::vector<Asked> ask_homes();

  // The barrier of the caller's process must have returned already. *pending: the same at each try
  // of a call; what an earlier one has sent is awaited, not repeated. *unknown: it ended, and
  // whether it was made nobody knows; it must not be tried again.
  Exception cas(const View& view, const std::byte* addr, uint64_t expected, uint64_t desired,
                uint64_t* found, PendingSwap* pending, bool* unknown, Deadline deadline);
  // Instead of the barrier of the importing side before a swap, and at its first try: where all
  // that is to be published fits one message to the word's home, the swap is sent along, and is in
  // *pending when this returns kOk. Anything else than kOk is what the barrier says: the swap was
  // not made.
  Status barrier_before_swap(const View& view, const std::byte* addr, uint64_t expected,
                             uint64_t desired, PendingSwap* pending, LossMark& mark, Nanos span);

  void on_notification(const ContextId& home, uint64_t secret, uint64_t number, uint16_t type,
                       Reader in, const fabric::DirectAck& direct_ack = {});

  // Service thread.
  int advance();
  void tick();
  void report_acked_below();  // to the homes; after a while in which no request has
  bool busy() const;          // wants ticks and polling of links
  // What to sleep on. Returns for how long at most: what others wait for is left to them, but they
  // may be gone any moment.
  Nanos descriptors(std::vector<int>* fds);
  void report(node::ContextReport* out);  // report.cpp

  // The client's, from now on. Until there is one, the time of death is taken, and a home that
  // gives signs of life is waited for beyond it.
  void set_reconf_timeout(Nanos t) { reconf_timeout_.store(t, std::memory_order_relaxed); }
  Nanos reconf_timeout() const override {
    const Nanos set = reconf_timeout_.load(std::memory_order_relaxed);
    return set != 0 ? set : parts_.watch.dead_after();
  }
  bool reconf_timeout_set() const { return reconf_timeout_.load(std::memory_order_relaxed) != 0; }
  // An access to this import that came to nothing in time is tried again: its home lives.
  bool waits_on(const Import& imp) const;

  // For the watch, which calls all of these on the service thread.
  bool imports_from(const ContextId& home);
  // Whether events of this context may name the home: it imported from it what is not marked for
  // deletion. What a neighbour imported is the neighbour's to hear of.
  bool concerned_with(const ContextId& home);
  std::shared_ptr<fabric::Link> link_with(const ContextId& home);  // null: there is none
  // Has a link with several routes find out whether the one that it takes still leads there.
  void try_link(const ContextId& home);
  // The home is dead or has ended: its link is condemned, its segments are gone.
  void lose_home(const ContextId& home);
  // Whether what is cached of the home's segments may be used. While it may not, nothing of it is
  // mapped and accesses wait; pages, dirty ones too, stay what they are.
  void set_lease_expired(const ContextId& home, bool lease_expired);

 private:
  // Write-backs that one collector started together; barriers wait for it. done completes when all
  // its messages are answered. Registered before any of its pages leaves kDirty, so that a barrier
  // that no longer finds a page dirty finds the batch (rule 8).
  struct WriteBack {
    uint64_t seq = 0;
    std::shared_ptr<Import> import;
    uint64_t token = 0;         // that had been presented when it began
    std::atomic<int> parts{1};  // the collector, and one for each message
    std::atomic<bool> failed{false};
    fabric::Op done;
  };
  class Collector;
  class Delivery;
  class Fault;
  class Fetch;
  class IntentRequest;
  class ExclusiveAccess;
  // Pages that changed whole and are written one-sided, a batch of their own. Their twins are kept
  // until the write's fate is known: with them the home can tell whether it arrived.
  struct BulkWrite {
    std::shared_ptr<WriteBack> batch;
    uint32_t first = 0;
    std::vector<uint32_t> twins;  // of the pages from `first` on
  };

  explicit Importer(Parts parts) : parts_(std::move(parts)) {}
  std::vector<fabric::Route> routes_to(const access::RsegInfo& rseg) const;
  std::shared_ptr<fabric::Link> link_to(const access::RsegInfo& rseg);
  // Why there is no answer to the first question.
  enum class NoAnswer : uint8_t { kBusy, kEnded, kOutOfReach, kRefused, kLocal };
  Result<std::vector<std::byte>> open(fabric::Link& link, bool write_through, Bytes question,
                                      NoAnswer* why, const JoinTime& time);
  static void say_no_answer(const access::RsegInfo& rseg, const fabric::Link& link, NoAnswer why);
  void take_back(const std::shared_ptr<Import>& imp, Bytes question, bool refused);
  std::vector<std::shared_ptr<Import>> all_imports();
  // The first after the one of this instance with pages in its list of dirty ones; null: none. What
  // somebody has taken from such a list is in a batch of his, which is begun before.
  std::shared_ptr<Import> next_dirty(uint32_t after);
  std::shared_ptr<Import> find_import(const ContextId& home, uint64_t uid, uint32_t instance);
  template <class Predicate>
  std::vector<std::shared_ptr<fabric::Link>> links_that(Predicate wanted) {
    return links_.those_that(wanted);
  }

  // grant.cpp
  Exception usable(Import& imp, bool write, uint32_t page);  // kNone, or why not
  bool await_idle_key(Import& imp, Deadline deadline);
  bool acquire(Import& imp, uint32_t first, uint32_t count, Deadline deadline);

  // enter_pages.cpp
  bool enter_pages(Import& imp, PageRange pages, Deadline deadline);
  bool adopt_token(const std::shared_ptr<Import>& imp, Deadline deadline);
  // *brk: the home's, of an extensible segment that it knows our import of; else round 0.
  Exception explain(Import& imp, Deadline deadline, Break* brk = nullptr);
  // Closes the import as the home said of what was asked under the token with this id. What is said
  // of a token that has been replaced ends nothing: kUsable.
  ImportState refused(Import& imp, WireStatus status, uint64_t token);
  bool session_key(Import& imp, fabric::Session& session, fabric::RemoteKey* key,
                   Deadline deadline);

  // fetch.cpp
  // Pages that arrived leave kFetching. `view`: where to map them, null for nowhere. `wanted`: the
  // one that faulted; kNoPage: none did, and the first is left unmapped, so that the reader who
  // comes to it asks for more (Page::marker). `write`: the wanted one is stored to next.
  void deliver(Import& imp, const View* view, PageRange pages, uint32_t wanted, bool write);
  void give_up_fetch(const std::shared_ptr<Import>& imp, uint32_t first, uint32_t count);
  bool make_dirty(const View& view, uint32_t page);
  // dirty_ahead.cpp, write_behind.cpp
  uint32_t dirty_ahead(const View& view, PageRange pages, const PageSeen* seen, bool* readahead);
  void write_behind(const std::shared_ptr<Import>& imp);

  // lapse.cpp
  bool home_has_ended(Import& imp);  // after a look at it; its imports are gone then

  // ahead.cpp
  PageRange claim(Import& imp, PageRange pages, bool pass_over);
  void read_ahead(const View& view, uint32_t page, bool write, Deadline deadline);
  bool start_ahead(const View& view, PageRange pages, bool write, Deadline deadline);
  bool await_ahead(Import& imp, uint32_t page, Deadline deadline);

  // cache.cpp
  void make_room(const std::shared_ptr<Import>& imp, uint32_t pages, Deadline deadline);
  void evict(Import& imp, uint32_t first, uint32_t count, std::vector<uint32_t>* dirty);
  bool back_pages(Import& imp, PageRange pages);

  // through.cpp
  Exception ask_write_through(const std::shared_ptr<Import>& imp, RequestType type, Bytes payload,
                              PendingStore* pending, std::vector<std::byte>* reply,
                              Deadline deadline);
  Result<std::shared_ptr<const View>> attach_write_through(const std::shared_ptr<Import>& imp,
                                                           void* addr, bool read_only);

  // swap.cpp, swap_with_stores.cpp
  Exception may_swap(const std::shared_ptr<Import>& imp, uint32_t page, Deadline deadline);
  Exception take_swap(const std::shared_ptr<Import>& imp, uint64_t* found, PendingSwap* pending,
                      Deadline deadline);
  Exception swap_by_message(const std::shared_ptr<Import>& imp, uint64_t offset, uint64_t expected,
                            uint64_t desired, uint64_t* found, PendingSwap* pending, bool* unknown,
                            Deadline deadline);
  void swapped_late(const std::shared_ptr<Import>& owner,
                    const std::shared_ptr<fabric::Request>& request, uint32_t index);
  std::shared_ptr<WriteBack> announce_swap(const std::shared_ptr<Import>& imp, uint64_t offset);
  Exception swap_by_provider(const std::shared_ptr<Import>& imp, uint64_t offset, uint64_t expected,
                             uint64_t desired, uint64_t* found, bool* unknown, Deadline deadline);
  void patch(const std::shared_ptr<Import>& imp, uint64_t offset, uint64_t word, bool same_page,
             uint32_t generation);
  static bool swaps_by_provider(const Import& imp);
  // swap_with_stores.cpp
  enum class Sent : uint8_t { kNothing, kWithSwap, kNotAll };
  bool may_send_with_swap(const View& view, uint32_t page);
  Sent send_with_swap(const std::shared_ptr<Import>& imp, const CasRequest& swap,
                      PendingSwap* pending, const LossMark& mark);
  bool nothing_else_to_publish(const Import& imp);

  // dirty_intents.cpp
  void unmark(const std::shared_ptr<Import>& imp, const std::vector<DirtyIntent>& intents);
  Exception ask_in_flux(Import& imp, uint32_t page, Deadline deadline);
  static bool take_in_flux(const std::shared_ptr<Import>& imp, const InFluxNotification& m,
                           std::vector<PageRange>* pages);
  static void settle_pages(Import& imp, std::vector<PageRange>* pages);

  // write_back.cpp
  std::shared_ptr<WriteBack> begin_write_back(const std::shared_ptr<Import>& imp);
  void end_part(const std::shared_ptr<WriteBack>& batch);
  // Sends a message about pages of the batch; answered() runs with the home's verdict.
  std::shared_ptr<fabric::Request> start_message(const std::shared_ptr<WriteBack>& batch,
                                                 RequestType type, Bytes payload,
                                                 std::vector<uint32_t> pages,
                                                 fabric::Request::Callback on_answer = {});
  void answered(const std::shared_ptr<WriteBack>& batch, std::vector<uint32_t>& pages,
                std::optional<WireStatus> status);
  void came_home(const std::shared_ptr<Import>& imp, const std::vector<uint32_t>& pages);
  void never_came_home(const std::shared_ptr<Import>& imp, const std::vector<uint32_t>& pages,
                       bool refused);
  void written(const std::shared_ptr<BulkWrite>& run, bool arrived);
  size_t write_back(Import& imp, std::vector<uint32_t>& pages, Collector& out,
                    const Patience& patience);
  uint32_t write_back_run(Import& imp, std::span<const uint32_t> pages, Collector& out)
      CMI_REQUIRES(imp.views.mu);
  static bool take_listed(Import& imp, uint32_t page);
  void send_and_protect(Import& imp, std::span<const uint32_t> pages, Collector& out);
  void protect_sent(Import& imp, PageRange sent) CMI_REQUIRES(imp.views.mu);
  // Hot pages that a barrier found with an earlier write-back under way.
  using BusyPages = std::map<std::shared_ptr<Import>, std::vector<uint32_t>>;
  bool collect(BusyPages* busy, bool again, const Patience& patience);
  // hot_write_back.cpp
  // Those of `pages` that are hot; the others are left alone. False: not in time. Without patience
  // nothing is waited for.
  enum class Which { kAll, kDue };  // kDue: those that the timer has found changed once before
  bool send_hot(Import& imp, std::span<const uint32_t> pages, Collector& out,
                const Patience* patience, std::vector<uint32_t>* busy, Which which = Which::kAll);
  void take_dense(Import& imp, std::vector<uint32_t>* hot, std::vector<uint32_t>* pages);
  void cool(Import& imp, std::vector<uint32_t>& pages, Collector& out);
  static bool is_hot(Page& page);
  // timer.cpp
  void take_aged(const std::shared_ptr<Import>& imp);
  void take_hot(const std::shared_ptr<Import>& imp);
  void leave_contended(Import& imp, std::vector<uint32_t>& pages, Nanos t);
  // Nothing is dirty and nothing under way: what this thread stored, or has seen stored by others
  // of this process, is home.
  bool settled() const;
  Status judge(LossMark& mark, bool good);
  std::vector<std::shared_ptr<WriteBack>> open_batches();
  bool await(Import& imp, fabric::Op& op, Deadline deadline);
  bool await(Import& imp, fabric::Op& op, const Patience& patience);
  bool await(WriteBack& batch, const Patience& patience);
  bool await(const std::vector<std::shared_ptr<WriteBack>>& batches, const Patience& patience);
  void protect_everywhere(Import& imp, uint32_t first, uint32_t count) CMI_REQUIRES(imp.views.mu);
  void zap_everywhere(Import& imp, uint32_t first, uint32_t count) CMI_REQUIRES(imp.views.mu);
  void set_state(Import& imp, Page& page, PageState to);
  void drop_twin(Page& page);
  void count_fetched(Import& imp, uint32_t pages);

  // notifications.cpp, page_drops.cpp
  // A notification about an import, and where its acknowledgement goes.
  struct Notified {
    const ContextId& home;
    uint64_t secret, number;
    const fabric::DirectAck& direct_ack;
    const std::shared_ptr<Import>& import;
  };
  void acknowledge(const Notified& n, Bytes release = {});
  void acknowledge_directly(const Notified& n, Bytes release = {});
  void on_invalidate(const Notified& n, const InvalidateNotification& m);
  void on_revoke(const Notified& n, const RevokeNotification& m);
  void on_removed(const Notified& n, const RemovedNotification& m);
  void on_in_flux(const Notified& n, const InFluxNotification& m);
  void answer_when_key_idle(const Notified& n);
  void on_break_notice(const Notified& n, const BreakNotification& m);
  void on_quiesce_notice(const Notified& n, const QuiesceNotification& m, bool on);
  // One invalidation: what its acknowledgement says, and what it has found.
  struct Invalidation {
    Writer released;         // ReleasedRegions
    bool to_home = false;    // the acknowledgement goes to the home in any case
    bool few_pages = false;  // it names so few that they may be released one by one (rule 28)
    bool found = false;      // some page was cached or being fetched
  };
  void drop(const std::shared_ptr<Import>& imp, PageRange range, Invalidation* by);
  void invalidate(const std::shared_ptr<Import>& imp, PageRange range, Invalidation* by = nullptr);
  void invalidate_page(Import& imp, uint32_t page, uint32_t together, Collector& out,
                       Invalidation* by);
  static void release_page(Import& imp, uint32_t page, PageState was, bool loaded_again,
                           Invalidation* by);
  // updates.cpp
  void subscribe(Import& imp, uint32_t page);
  bool update(Import& imp, uint32_t page, uint32_t epoch, uint32_t number, Bytes diff);
  void drop_all(const std::shared_ptr<Import>& imp);
  void drop_pages(Import& imp, PageRange pages, std::vector<uint32_t>* lost,
                  std::vector<DirtyIntent>* intents);
  void drop_page(Import& imp, uint32_t page, std::vector<uint32_t>* lost,
                 std::vector<DirtyIntent>* intents);
  // `token`: whose end it is, for kRevoked. False: it is not the import's token any more.
  bool end_import(const std::shared_ptr<Import>& imp, ImportState state, uint64_t token = 0);
  void lose_home(const std::shared_ptr<fabric::Link>& link);
  void answer_pending_revocations();

  // losses.cpp
  void lose(const std::shared_ptr<Import>& imp, const std::vector<uint32_t>& pages);
  void report();
  void notify_importing_processes();

  // import_break.cpp
  static bool read_break(const Import& imp, Bytes in, Break* brk);
  static bool legal(const Import& imp, const Break& brk);
  static bool take_break(Import& imp, const Break& brk);  // false: a newer one has come already
  static bool key_is_for(Import& imp, const Break& brk, uint32_t generation);
  bool on_break(const std::shared_ptr<Import>& imp, const BreakNotification& m,
                PendingAnswer* later);
  static bool settle_past_break(Import& imp, std::vector<PageRange>* pages);
  void store_break(Import& imp);
  void grow_to(Import& imp, const Break& brk);
  // An access behind the break that is known here. kSegBrk: the home says so, too; kNone: it does
  // not, and the break has moved here by now.
  Exception past_break(Import& imp, uint32_t page, Deadline deadline);

  // import_quiesce.cpp
  void on_quiesce(const std::shared_ptr<Import>& imp, bool on, uint32_t round);
  void end_quiesce(const Import& imp);

  // leave.cpp
  enum class Use { kOver, kHomeEnded, kUnderWay };
  Use end_use(const std::shared_ptr<Import>& imp, const Patience& patience);
  void forget(const std::shared_ptr<Import>& imp);
  void on_goodbye(const ContextId& home);

  Parts parts_;
  Userfault userfault_;
  TwinPool twins_;
  std::atomic<Nanos> reconf_timeout_{0};  // 0: the client has set none

  Links links_;
  Mutex imports_mu_;
  std::vector<std::shared_ptr<Import>> imports_ CMI_GUARDED_BY(imports_mu_);  // by instance
  uint32_t next_instance_ CMI_GUARDED_BY(imports_mu_) = 1;
  std::set<ContextId> leases_expired_ CMI_GUARDED_BY(imports_mu_);  // homes; see lapse()

  std::atomic<uint64_t> dirty_pages_{0}, open_write_back_count_{0}, aheads_{0};
  std::atomic<uint64_t> cleaned_{0};  // counted for fault threads only
  LossReporter losses_;
  std::atomic<uint64_t> unanswered_{0};  // messages of batches
  Mutex enabled_mu_;
  std::vector<pid_t> enabled_ CMI_GUARDED_BY(enabled_mu_);  // threads with cmi_enb
  std::atomic<bool> exclusive_{false};  // set under enabled_mu_: another one has to wait
  std::atomic<int> serving_{0};
  PendingStores pending_;
  Mutex write_backs_mu_;
  uint64_t next_write_back_ CMI_GUARDED_BY(write_backs_mu_) = 1;
  std::deque<std::shared_ptr<WriteBack>> write_backs_
      CMI_GUARDED_BY(write_backs_mu_);  // as they began

  Mutex observer_mu_;  // held while the observer is told, so that it hears of causes first
  std::atomic<int> others_due_{0};  // losses of neighbours, which the timer sends to them
  std::atomic<bool> acked_below_unreported_{
      false};  // homes may not have heard of what is over with direct acks

  // Fetches that were given up: their pages stay kFetching until the session is destroyed.
  struct Stranded {
    std::weak_ptr<void> session;  // its life
    std::shared_ptr<Import> import;
    uint32_t first, count;
  };
  Mutex later_mu_;
  std::vector<Stranded> stranded_ CMI_GUARDED_BY(later_mu_);
  std::atomic<int> later_count_{0};  // of those
  PendingAnswers answers_;
  // Of a processor, for write-backs that no thread waits for: 5 %. Service thread alone.
  CpuShare timer_share_{20, 2 * kMilli};
  size_t timer_turn_ = 0;
  Nanos hot_links_seen_ = 0;  // the service thread has advanced links that others wait for
};

}  // namespace cmi::memory
