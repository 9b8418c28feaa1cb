// The home side of the coherence protocol: segments of this node that this process made or
// attached, their exports and tokens, the importers that hold pages, and invalidation rounds.
//
// Files: home.cpp (segments and views), adopt.cpp (those of the client's own memory), export.cpp
// (handles, tokens, revocation, removal), requests.cpp (what importers ask), publish.cpp (notices
// and their acknowledgements), in_flux.cpp and recovery.cpp (pages in flux after an importer's
// death: importers' marks, lists; covering the pages here, giving them back), home_barrier.cpp
// (stores of this node: tracking, barriers, CAS), home_bus.cpp (what processes of the node tell
// each other), home_break.cpp (extensible segments), home_follow.cpp (what goes along with
// notices), home_through.cpp (accesses of write-through imports), home_quiesce.cpp,
// home_partings.cpp (the ends of contexts), home_large.cpp (segments of large pages).
//
// Only the process that made a segment exports and publishes it. Other processes of the node attach
// the same file; they register their views with the maker over the node bus, and their barriers and
// swaps ask it to publish.
//
// Threads: any; requests and acknowledgements come from whoever polls the server. One lock, mu_; it
// is never held over a wait, and answers go out after it is released where they call back. Outside
// of it resize_mu_, which application threads alone take: one break moves at a time.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/access/handles.hpp"
#include "core/liveness/peer_watch.hpp"
#include "core/memory/page/directory.hpp"
#include "core/memory/page/local_imports.hpp"
#include "core/memory/page/observer.hpp"
#include "core/memory/page/page_set.hpp"
#include "core/memory/page/stats.hpp"
#include "core/memory/page/update_protocol.hpp"
#include "core/memory/vm/userfault.hpp"
#include "core/memory/vm/view_table.hpp"
#include "core/memory/wire/bus_messages.hpp"
#include "core/memory/wire/notifications.hpp"
#include "core/memory/wire/requests.hpp"
#include "core/node/context_report.hpp"
#include "core/node/node.hpp"
#include "core/segment/mappings.hpp"
#include "fabric/server.hpp"

namespace cmi::memory {

inline constexpr uint32_t kMaxTokens = 16384;  // of a context
inline constexpr uint32_t kMaxTokensPerSegment = 16384;
inline constexpr uint32_t kMaxExports = 1024;
inline constexpr size_t kTokensListener =
    0;  // by whose fabric tokens are registered; sessions: each by its own
inline constexpr size_t kMaxSharers = 4096;              // imports of one segment
inline constexpr size_t kMaxNotifications = 65536;       // that one importer has not answered
inline constexpr size_t kMaxRecovery = size_t{1} << 30;  // bytes of one CHECK or RECO

class Home {
 public:
  struct Parts {
    node::Node& node;
    fabric::Server& server;
    ContextId self;
    NodeId node_id;
    ViewTable& views;
    Stats& stats;
    liveness::PeerWatch& watch;
    Observer& observer;
    // Of this context, for what a neighbour says of an import that both use; null: has none.
    LocalImports* importer = nullptr;
  };
  static Result<std::unique_ptr<Home>> open(Parts parts);
  ~Home();

  // home.cpp
  Result<int32_t> create(uint64_t size, int32_t flags, uint64_t reservation);
  bool owns(int32_t id);
  Result<void*> attach(int32_t id, uint64_t size, void* addr, bool read_only, Deadline deadline);
  // kInval: nothing of that segment is attached at exactly this address. Memory of the client's own
  // is given back; kNoMem: there is no room for that, kHw: some of it is broken. The view then
  // stays, but at the end of the context (`ending`), where broken pages alone are left as they are.
  Status detach(int32_t id, void* addr, Deadline deadline, bool ending = false);
  // adopt.cpp: seg_getva
  // The memory at va, as much as the new segment is large, becomes its memory and its first view.
  // Until then nobody else knows of the segment. On failure the memory is as it was. kInval: some
  // of it is not mapped, or a segment's. kPerm, kNotSupp: see segment::own_memory.
  Status adopt(int32_t id, void* va);
  // Fault handler: whether a store has to wait.
  bool being_moved(const View& view);
  // The process ends and nobody takes its faults any more.
  void stop_watching_adopted();

  // The home view that `addr` lies in: its segment, or 0.
  int32_t segment_at(const void* addr, size_t* offset, bool* read_only);
  uint32_t exports();

  // export.cpp
  Result<access::RsegInfo> export_segment(int32_t id, int32_t flags, int32_t attrib);
  // `part`: nullptr for the whole segment.
  Result<access::TokenInfo> new_token(int32_t id, bool any_node, NodeId node, uint32_t rights,
                                      const access::TokenPart* part);
  Status delete_token(const access::TokenInfo& token, Deadline deadline);
  // Tells importers that the segment is marked for deletion.
  void removed(int32_t id, Deadline deadline);

  // home_partings.cpp
  // Ends every export, as the end of the process would, and says goodbye.
  void close(Deadline deadline);

  // home_break.cpp
  // CMI_SEG_BRK: when it returns, nobody anywhere accesses what lies behind `to`, or everybody may
  // access what lies before it.
  // An importer has `patience` for its answer, from when it is asked.
  Status set_break(int32_t id, uint64_t to, uint64_t reservation, Nanos patience);
  // Fault handler: whether the page lies past the break; and of one that does not, whether it may
  // have when it was accessed.
  bool past_break(const View& view, const std::byte* addr);
  bool break_may_have_moved(const View& view, const std::byte* addr);
  bool past_break(int32_t id, size_t offset);

  // home_quiesce.cpp
  // Has the clients of a segment made here stop using it, here and wherever it is imported, and has
  // seg_at refuse it meanwhile; `settled` runs when all have returned the event, or no longer need
  // to. Once more: the same again. kInval, kPerm, kNoMem: it will not run.
  Status quiesce(int32_t id, std::function<void()> settled);
  // Has them go on. Of a segment that is not quiesced: nothing.
  Status resume(int32_t id);

  // Asks all importers whether they are there; see engine/probe_all.hpp.
  uint64_t ask_importers();
  bool all_answered(uint64_t call);
  struct Silent {
    access::NaddrInfo who;
    fabric::ListenerAddress listener;
  };
  std::vector<Silent> end_call(uint64_t call);  // those that have not answered

  // home_barrier.cpp
  // Pages of segments, by their ids.
  using Lines = std::map<int32_t, PageSet>;
  // Publishes what this node has stored, and the pages named in any case: what a device has written
  // to them the kernel does not note. The clock is read where there is something to wait for.
  Status barrier(Nanos within, const Lines& named = {});
  // kReconfig: the word's page is in flux; kBound: it lies past the break.
  Result<uint64_t> cas(int32_t id, size_t offset, uint64_t expected, uint64_t desired,
                       Deadline deadline);

  // home_bus.cpp
  void on_datagram(node::Node::Datagram datagram);
  // Tells the other processes of the node that this one has set another token for a proxy; they
  // access nothing under the old one when this returns, or the deadline has passed (false).
  bool notify_token(int32_t proxy, Deadline deadline);
  void report(node::ContextReport* out);  // report.cpp

  // recovery.cpp: CMI_SEG_CHECK and CMI_SEG_RECO. kPerm: not the process that made the segment.
  // kInval: [addr, addr+size) is no range of whole pages of one of its views, or too long.
  // *addr, *size become the lowest range that needs recovery; size 0: none does.
  Status check_in_flux(int32_t id, std::byte** addr, size_t* size);
  Status recover(int32_t id, std::byte* addr, size_t size, Deadline deadline);
  bool any_in_flux(int32_t id);                           // as far as this process knows
  bool in_flux(int32_t id, size_t offset);                // the same of one page
  bool in_flux(const View& view, const std::byte* addr);  // fault handler
  // How often pages were uncovered: a fault on a page that is not in flux may have met its cover.
  uint64_t uncovered() const { return uncovered_.load(std::memory_order_acquire); }

  // From the server's handler.
  void on_new_session(const fabric::ClientInfo& client);
  void on_request(const fabric::ClientInfo& client, uint64_t number, uint16_t type, Reader in);
  void on_ack(const ContextId& client, uint64_t number, Reader let_go);
  void on_acked_below(const ContextId& client, uint64_t below, std::span<const uint64_t> behind);
  bool knows(const ContextId& client);  // some import of it is known here

  // For the watch. Since when importers owe acknowledgements; 0: this one owes none. Who cannot
  // answer before others have answered it owes nothing meanwhile.
  void unacknowledged_since(std::map<ContextId, Nanos>* since);
  Nanos unacknowledged_since(const ContextId& client);
  // Nothing has been owed until now: this side could not ask.
  void extend_deadlines();
  // Whether its end would be told, and who it is.
  bool imported(const ContextId& client, access::NaddrInfo* who);
  // It is dead, or has said goodbye: fenced, and nobody waits for it any more.
  void forget(const ContextId& client, bool goodbye);

  // Service thread.
  void tick(Nanos t);
  bool busy();

 private:
  friend struct HomeMutations;  // breaks rules on purpose, for tests
  struct Token {
    access::TokenInfo info;
    std::unique_ptr<fabric::Region> region;
    bool revoked = false;
  };
  static constexpr uint64_t kNoLow = UINT64_MAX;
  struct Sharer {  // one import of one client
    ContextId client;
    NodeId node;
    uint32_t instance = 0;
    bool write_through = false;     // imported as write-through; all imports of a segment agree
    bool presented = false;         // a token, once
    bool awaits_quiesce = false;    // its client has not said that it stopped
    uint32_t quiesce_notified = 0;  // the last round that it was told of
    uint64_t token = 0;             // id; 0: none presented, or revoked
    uint32_t unacknowledged_revocations = 0;  // revocations that it has not answered
    // Until it has heard that its token is revoked, it loads what it has cached, and is told of
    // what is published like any other.
    bool loads() const { return token != 0 || unacknowledged_revocations != 0; }
    uint32_t rights = 0;
    PageRange pages;  // that its token is for
    bool covers(uint64_t first, uint64_t count) const {
      return first >= pages.first && first + count <= pages.first + uint64_t{pages.count};
    }
    bool could_write = false;                 // once, with some token
    std::unique_ptr<fabric::Region> session;  // its own registration (a fence closes it)
    uint64_t session_end = 0;                 // bytes of the segment that it covers
    // Bytes. The highest break that it may have used since it acknowledged one last, and the lowest
    // that has come below that: what it has from there on is of before. kNoLow: none has.
    uint64_t brk_peak = 0, brk_low = kNoLow;
    SharedRegions regions;
    SharerSubscriptions subscriptions;
    // Pages that it stores to, or whose stores are not published: the map of pages in flux, should
    // it die. Client-inconsistent segments only; page, epoch (IntentState).
    std::map<uint32_t, uint8_t> intents;
  };
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
    bool leaving = false;  // it is being given back: mapped by who does that alone
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
  struct InvalidationRound;
  // A view of another process's segment that has ended, of which that process has not heard.
  struct PendingDetach {
    node::ContextSlot owner{};
    int32_t segment = 0;
    std::byte* addr = nullptr;
    size_t len = 0, mapped = 0;
    std::shared_ptr<const View> view;  // with what was stored through it and is yet to be told
    Nanos born = 0, sent = 0;
  };
  struct Watcher {  // another process of this node that has views of the segment
    node::ContextSlot slot{};
    PageSet covered;           // what it may have covered: no scan goes there
    uint64_t seen = 0;         // version of the list that it has acted on
    Nanos born = 0, sent = 0;  // that version: when it was made, and told of last
    std::vector<std::shared_ptr<InvalidationRound>>
        unacknowledged;  // settled when it has seen the last version
  };
  struct Segment {
    int32_t id = 0;
    uint64_t uid = 0, size = 0;
    int32_t flags = 0, attrib = 0;
    size_t page_size() const { return access::page_size_of(flags); }  // of its memory
    bool owned = false, exported = false, removed = false;
    bool exported_cached = false, exported_write_through = false;  // how it may be imported
    uint64_t subscribed = 0;  // slots of pages that some importer follows, or has
    // At the owner; elsewhere the file's end is the break. Service views are accessed before it
    // alone, which mu_ orders at the owner, and the node's lock elsewhere.
    Break brk;
    node::ContextSlot owner{};
    Fd file;
    Mapping service;
    std::map<uint64_t, Token> tokens;
    std::vector<Sharer> sharers;
    std::vector<ContextId> keyed;  // clients that have had a session key
    bool had_token = false;        // so that somebody may write to its memory past us
    Directory directory;
    std::vector<HomeView> views;
    std::vector<ForeignView> foreign;
    // Pages in flux, covered in our views; at the owner the truth, elsewhere the list of that
    // version.
    PageSet in_flux;
    uint64_t flux_version = 0;  // raised by the owner with each change
    uint64_t unreported = 0;    // elsewhere: the version of which the owner is yet to hear; 0: none
    Fd flux_list;               // that version, for the watchers
    std::vector<Watcher> watchers;
    bool shared() const;  // somebody may have pages of it
    uint64_t publications = 0,
             notifications = 0;  // so far: of its pages, and messages that told of them

    struct {
      bool on = false;
      bool unacknowledged = false;                 // our own client has not said that it stopped
      uint32_t round = 0;                          // raised by each change
      std::vector<std::function<void()>> settled;  // to run when nobody owes anything
    } quiesce;
  };
  struct Quarantined {
    Mapping place;
    std::vector<std::pair<ContextId, uint32_t>> sessions;  // that may still reach it
  };
  struct InvalidationRound {
    ContextId by;    // the importer whose stores it publishes, if it is one
    Nanos born = 0;  // 0: while no list of pages in flux waited for an answer
    int waiting = 0;
    // Number of the request for which those who are told give direct acks; 0: none do. kNotSettled:
    // its publisher has a new session, and what he says of older numbers is not believed.
    uint64_t direct_acks = 0;
    static constexpr uint64_t kNotSettled = UINT64_MAX;
    uint64_t first_notification = 0, last_notification = 0;  // those that ask for direct acks
    uint64_t uid = 0;  // what it has published came from this import of that segment,
    uint32_t instance = 0;
    std::vector<DirtyIntent> intents;  // and these are to be cleared when it is over
    std::function<void()> finished;    // run once, without mu_
    // What is waited for until this one and others are over. Not in `finished`, one around the
    // other: there may be thousands.
    std::vector<std::shared_ptr<InvalidationRound>> then;
    fabric::Op done;  // for local waiters
    Fd file;          // came with the answer to a question over the bus
  };
  struct Notification {
    ContextId client;
    NotificationType type{};
    uint64_t uid = 0;  // of the segment, and which import of it
    uint32_t instance = 0;
    std::vector<std::byte> payload;
    std::shared_ptr<InvalidationRound> round;
    Nanos born = 0, sent = 0;
    Nanos due = 0;          // its answer is, since
    Nanos progress_at = 0;  // of a list: when its receiver has come nearer to its answer last
  };
  using Finished = std::vector<std::function<void()>>;

  explicit Home(Parts parts) : parts_(std::move(parts)) {}
  Segment* find(int32_t id) CMI_REQUIRES(mu_);
  Segment* find_uid(uint64_t uid) CMI_REQUIRES(mu_);
  template <class Predicate>
  void forget_sharers(Segment& s, Predicate which) CMI_REQUIRES(mu_);
  void recount(const Segment& s, bool was_shared) CMI_REQUIRES(mu_) {
    if (was_shared && !s.shared()) shared_segments_.fetch_sub(1);
  }
  Sharer* find_sharer(Segment& s, const ContextId& client, uint32_t instance) CMI_REQUIRES(mu_);
  Status map_service(Segment& s) CMI_REQUIRES(mu_);
  Status begin_segment(int32_t id, uint64_t size, int32_t flags, Fd file);
  const std::string& device() const;
  void arm(Segment& s) CMI_REQUIRES(mu_);
  void arm(HomeView& v) CMI_REQUIRES(mu_);
  static void reply(fabric::Server& server, const ContextId& client, uint64_t number, WireStatus s,
                    Bytes more = {});

  // adopt.cpp
  Status move_onto(int file, const std::byte* content, std::byte* at, size_t size);
  // False: it cannot be told what is ours, so nothing may be mapped there.
  bool look_at_adopted(Segment& s, HomeView& v) CMI_REQUIRES(mu_);
  void mapped_over(const std::byte* addr, size_t len) CMI_REQUIRES(mu_);
  bool still_adopted(Segment& s, HomeView& v, size_t offset) CMI_REQUIRES(mu_);
  Status give_back(int32_t id, const View& view, bool leave_broken) CMI_EXCLUDES(mu_);

  // home_buried.cpp. The memory of a segment that goes, while somebody may still write to it.
  void note_key(Segment& s, const ContextId& client) CMI_REQUIRES(mu_);
  void bury(Segment& s) CMI_REQUIRES(mu_);
  void unbury() CMI_EXCLUDES(mu_);

  // publish.cpp. Null: nobody else holds any of it, and it is over. Else the caller may set
  // `finished` before he lets go of mu_. What collects what finished in *done: the caller runs that
  // without mu_. `stored`: of pages that somebody follows, what of them is new. `asked`: by whose
  // request, if its sender takes direct acks from those who are told.
  struct Asked {
    uint64_t number, secret;  // 0: he does not
  };
  std::shared_ptr<InvalidationRound> publish(Segment& s, const ContextId& except, uint32_t instance,
                                             const std::vector<PageRange>& ranges,
                                             const std::vector<StoredPage>& stored = {},
                                             const Asked& asked = {}) CMI_REQUIRES(mu_);
  void notify(const std::shared_ptr<InvalidationRound>& p, const Segment& s, const Sharer& h,
              NotificationType type, Bytes payload) CMI_REQUIRES(mu_);
  void notify(const std::shared_ptr<InvalidationRound>& p, const ContextId& client, uint64_t uid,
              uint32_t instance, NotificationType type, Bytes payload) CMI_REQUIRES(mu_);
  void settle(const std::shared_ptr<InvalidationRound>& p, Finished* done) CMI_REQUIRES(mu_);
  // Whether a invalidation round of its receiver that was begun then keeps him from answering a
  // list.
  bool excuses(Nanos begun, const Notification& list) const;
  // A invalidation round of this importer that was begun then is over.
  void published(const ContextId& by, Nanos begun) CMI_REQUIRES(mu_);
  // One that is to answer a list has come nearer to it.
  void made_progress(const ContextId& client) CMI_REQUIRES(mu_);
  void heard(const Notification& revocation) CMI_REQUIRES(mu_);
  void regions_released(const ContextId& client, const ReleasedRegions& m) CMI_REQUIRES(mu_);
  // It was answered, or its receiver is dead.
  std::map<uint64_t, Notification>::iterator over(
      std::map<uint64_t, Notification>::iterator notification, Finished* done) CMI_REQUIRES(mu_);
  std::map<uint64_t, Notification>::iterator drop_notification(
      std::map<uint64_t, Notification>::iterator notification) CMI_REQUIRES(mu_);
  // `instance`: of one import, 0: of all that the client has.
  void forget_content(Segment& s, const ContextId& client, uint32_t instance) CMI_REQUIRES(mu_);
  void forget_client(const ContextId& client, Finished* done) CMI_REQUIRES(mu_);
  void notify_ranges(const std::shared_ptr<InvalidationRound>& p, const Segment& s, const Sharer& h,
                     NotificationType type, const std::vector<PageRange>& ranges) CMI_REQUIRES(mu_);
  // tell() in two steps. What was sent is kept, by number, until it is answered; no answer is taken
  // in before that, since who takes it in has mu_.
  using Sent = std::vector<std::pair<uint64_t, Notification>>;
  void send(const ContextId& client, uint64_t uid, uint32_t instance, NotificationType type,
            std::vector<std::byte> payload, Sent* sent, const fabric::DirectAck& direct_ack = {})
      CMI_REQUIRES(mu_);
  void send_ranges(const Segment& s, const Sharer& h, NotificationType type,
                   const std::vector<PageRange>& ranges, Bytes updates, Sent* sent,
                   const fabric::DirectAck& direct_ack = {}) CMI_REQUIRES(mu_);
  struct Addressee {
    Sharer* sharer;
    std::vector<PageRange> shared;
  };
  Bytes receives_from(const ContextId& publisher, const std::vector<Addressee>& to,
                      std::span<std::byte> buf) CMI_REQUIRES(mu_);
  void keep(const std::shared_ptr<InvalidationRound>& p, Sent sent) CMI_REQUIRES(mu_);
  bool wait(InvalidationRound& p, Deadline deadline);
  static void run(Finished& done);

  // home_partings.cpp
  WireStatus why_gone(const Segment* s) CMI_REQUIRES(mu_);  // of one that cannot be used any more
  // The segments that its end is told for, and who it is.
  std::vector<int32_t> imported_by(const ContextId& client, access::NaddrInfo* who)
      CMI_REQUIRES(mu_);
  void on_leave(const fabric::ClientInfo& client, uint64_t number, const LeaveRequest& m);
  void on_goodbye(const fabric::ClientInfo& client, uint64_t number, const GoodbyeRequest& m);

  // home_quiesce.cpp
  void on_returned(const fabric::ClientInfo& client, uint64_t number, const ReturnedRequest& m);
  // A datagram as it came, and what is to be run once mu_ is free.
  struct BusFrom {
    node::Node::Datagram& datagram;
    Finished& done;
    node::ContextSlot slot() const { return datagram.from; }
  };
  void on_bus_quiesce(const BusFrom& from, const BusQuiesce& m);
  // For the importing side of this process: what a neighbour lost of a segment that we imported.
  void on_bus_lost(const BusFrom& from, const BusLost& m);
  void own_client_returned(int32_t id, uint32_t round);
  void notify_quiesce(Segment& s, Sharer& h, Finished* done) CMI_REQUIRES(mu_);
  void complete_quiesce(Segment& s, Finished* done) CMI_REQUIRES(mu_);

  // requests.cpp
  Sharer* add_sharer(Segment& s, const fabric::ClientInfo& client, uint32_t instance,
                     bool write_through) CMI_REQUIRES(mu_);  // null: there are too many
  void on_open(const fabric::ClientInfo& client, uint64_t number, const OpenRequest& m,
               bool write_through);
  WireStatus check(const ContextId& client, uint64_t uid, uint32_t instance, uint32_t right,
                   Segment** s, Sharer** h) CMI_REQUIRES(mu_);
  void on_present_token(const fabric::ClientInfo& client, uint64_t number,
                        const PresentTokenRequest& m, bool write_through);
  void on_publish(const fabric::ClientInfo& client, uint64_t number, const PublishRequest& m);
  void on_announce(const fabric::ClientInfo& client, uint64_t number, const AnnounceRequest& m);
  struct Applied;  // of a publish or an announcement
  bool publish_applied(Segment& s, Sharer& h, const fabric::ClientInfo& client, uint64_t number,
                       Applied& applied) CMI_REQUIRES(mu_);
  void on_alive(const fabric::ClientInfo& client, uint64_t number, const AliveRequest& m);
  void on_acquire(const fabric::ClientInfo& client, uint64_t number, const AcquireRequest& m);
  void on_repair(const fabric::ClientInfo& client, uint64_t number, const RepairRequest& m);
  void on_cas(const fabric::ClientInfo& client, uint64_t number, const CasRequest& m);

  // home_follow.cpp
  void on_subscribe(const fabric::ClientInfo& client, uint64_t number, const SubscribeRequest& m);
  // Whether any importer does.
  static bool subscribed(Segment& s, uint32_t page);
  // What is new when this word is, or these whole pages may be; of those that are followed.
  static std::vector<StoredPage> word_of(Segment& s, uint64_t offset);
  static std::vector<StoredPage> whole_pages(Segment& s, const std::vector<PageRange>& ranges);
  // Of what is new, that which goes to this sharer; the pages leave *ranges, which it is to drop.
  // `sent`: how many notices are not among those that are kept yet. `words`: of each of `stored` as
  // a diff, read for the first sharer who follows it; an empty one: its memory is broken.
  using NewWords = std::vector<std::optional<std::vector<std::byte>>>;
  std::vector<std::byte> updates_for(Segment& s, Sharer& h, const std::vector<StoredPage>& stored,
                                     NewWords* words, std::vector<PageRange>* ranges)
      CMI_REQUIRES(mu_);
  static std::vector<std::byte> words_at_home(const Segment& s, const StoredPage& p);

  // home_through.cpp
  // A segment is imported in one way at a time.
  static bool may_import(const Segment& s, bool write_through);
  WireStatus check_write_through(const fabric::ClientInfo& client, uint64_t uid, uint32_t instance,
                                 uint64_t offset, size_t len, uint32_t rights, Segment** s)
      CMI_REQUIRES(mu_);
  void on_load(const fabric::ClientInfo& client, uint64_t number, const LoadRequest& m);
  void on_store(const fabric::ClientInfo& client, uint64_t number, const StoreRequest& m);
  void on_swap(const fabric::ClientInfo& client, uint64_t number, const SwapRequest& m);

  // in_flux.cpp
  void on_dirty_intent(const fabric::ClientInfo& client, uint64_t number,
                       const DirtyIntentRequest& m, bool set);
  void on_fetch_with_intent(const fabric::ClientInfo& client, uint64_t number,
                            const FetchWithIntentRequest& m);
  static WireStatus may_intend(const Segment& s, const Sharer& h, uint32_t page);
  void on_ask_flux(const fabric::ClientInfo& client, uint64_t number, const AskFluxRequest& m);
  // What these dirty intents stood for has been published.
  void clear_intents(InvalidationRound& p) CMI_REQUIRES(mu_);
  void clear_intents(Segment& s, Sharer& h, const std::vector<DirtyIntent>& intents)
      CMI_REQUIRES(mu_);
  // A fenced client's marks become pages in flux; *p is settled when everybody knows. `instance`:
  // of the import that is cut off, while the client lives on; 0: of all, since it is dead.
  void lose_intents(Segment& s, const ContextId& client, uint32_t instance,
                    const std::shared_ptr<InvalidationRound>& p) CMI_REQUIRES(mu_);
  void put_in_flux(Segment& s, const ContextId& except, std::vector<PageRange> pages,
                   const std::shared_ptr<InvalidationRound>& p) CMI_REQUIRES(mu_);
  void flux_changed(Segment& s, const std::shared_ptr<InvalidationRound>& p) CMI_REQUIRES(mu_);
  bool send_list(Segment& s, Watcher& w) CMI_REQUIRES(mu_);
  void remind_watchers(Segment& s, Nanos t, Finished* done) CMI_REQUIRES(mu_);
  bool add_watcher(Segment& s, node::ContextSlot slot) CMI_REQUIRES(mu_);
  void on_list_seen(Segment& s, node::ContextSlot slot, uint64_t version, Finished* done)
      CMI_REQUIRES(mu_);
  void take_list(Segment& s, uint64_t version, const Fd& list) CMI_REQUIRES(mu_);

  // recovery.cpp
  bool cover(Segment& s, const std::vector<PageRange>& pages) CMI_REQUIRES(mu_);
  bool cover(HomeView& v, PageRange pages) CMI_REQUIRES(mu_);
  bool uncover(Segment& s, PageRange pages) CMI_REQUIRES(mu_);
  bool uncover(Segment& s, HomeView& v, PageRange pages) CMI_REQUIRES(mu_);
  Status recovery_range(int32_t id, const std::byte* addr, size_t size, Segment** s,
                        HomeView** view, PageRange* pages) CMI_REQUIRES(mu_);

  // home_break.cpp
  static uint64_t break_of(const Segment& s);  // as it is now; bytes
  void notify_break(const std::shared_ptr<InvalidationRound>& p, Segment& s) CMI_REQUIRES(mu_);
  void notify_break(const std::shared_ptr<InvalidationRound>& p, const Segment& s, const Sharer& h)
      CMI_REQUIRES(mu_);
  // From where on this import has to drop what it has, though it lies before the break: it did not
  // hear of a lower one in time. The break itself: there is nothing. Until it has acknowledged the
  // newest, it gets no key, and what it stored from there on is of before.
  static uint64_t low_of(const Segment& s, const Sharer& h) {
    return std::min(h.brk_low, s.brk.bytes);
  }
  void on_break_heard(const Notification& n) CMI_REQUIRES(mu_);
  void on_cause(const fabric::ClientInfo& client, uint64_t number, const CauseRequest& m);
  bool uncover_past_break(Segment& s, const std::shared_ptr<InvalidationRound>& p)
      CMI_REQUIRES(mu_);
  void renew_tokens(Segment& s) CMI_REQUIRES(mu_);
  void watch_again(Segment& s, uint64_t from) CMI_REQUIRES(mu_);
  void watch_again_everywhere(int32_t id, uint64_t uid, uint64_t from, Nanos patience);

  // home_large.cpp
  // Views, in flux or given back, are changed by whole pages of the memory.
  static PageRange outward(PageRange pages, size_t page_size);
  static std::vector<PageRange> outward(const Segment& s, const std::vector<PageRange>& pages);
  // The file behind a segment of the node.
  Result<Fd> file_of(int32_t id, const Result<node::SegmentInfo>& info, Deadline deadline)
      CMI_EXCLUDES(mu_);

  // export.cpp
  // Importers that have not acknowledged: fences them, and tells of what they may have stored.
  void cut_off_silent(const std::shared_ptr<InvalidationRound>& p, uint64_t uid);
  // What the token lets its sharer reach: its part of the segment, up to the break. For the present
  // session of `client`; without one for the token itself.
  Result<std::unique_ptr<fabric::Region>> register_for(Segment& s, const access::TokenInfo& token,
                                                       uint64_t key,
                                                       const ContextId* client = nullptr)
      CMI_REQUIRES(mu_);

  // home_barrier.cpp
  // The pages of these ranges that this node has stored to since they were looked at last.
  std::vector<PageRange> scan(Segment& s, const std::vector<PageRange>& ranges) CMI_REQUIRES(mu_);
  bool scan_own(Segment& s, HomeView& v, const std::vector<PageRange>& ranges,
                std::vector<PageRange>* out) CMI_REQUIRES(mu_);
  static std::vector<PageRange> uncovered(const Segment& s, const ForeignView& v,
                                          const std::vector<PageRange>& ranges);
  void drop_dead_views(Segment& s) CMI_REQUIRES(mu_);
  bool scan_foreign(Segment& s, const ForeignView& v, const std::vector<PageRange>& ranges,
                    std::vector<PageRange>* written);
  // Nobody needs to hear of what was stored to these pages until now.
  void forget_stores(Segment& s, const std::vector<PageRange>& ranges) CMI_REQUIRES(mu_);
  // `named`: pages to publish whether or not they were stored to; nullptr: none.
  std::shared_ptr<InvalidationRound> scan_and_publish(Segment& s, const PageSet* named = nullptr)
      CMI_REQUIRES(mu_);
  std::shared_ptr<InvalidationRound> publish_scan(Segment& s, const std::vector<PageRange>& ranges)
      CMI_REQUIRES(mu_);
  std::shared_ptr<InvalidationRound> publish_scan(Segment& s, const std::vector<PageRange>& ranges,
                                                  const std::vector<StoredPage>& stored)
      CMI_REQUIRES(mu_);

  // home_lingering.cpp
  void detach_later(PendingDetach view);
  void remind_owners(Nanos t, Finished* done) CMI_REQUIRES(mu_);

  // home_bus.cpp
  bool say_seen(Segment& s) CMI_REQUIRES(mu_);
  bool send_stored(Segment& s) CMI_REQUIRES(mu_);
  bool send_stored(node::ContextSlot owner, int32_t id, StoreLog& stores) CMI_REQUIRES(mu_);
  bool notify_stored(int32_t id, Deadline deadline);
  // Asks another process of the node, mostly a segment's owner, and waits. True also when it ended.
  // The question's number is chosen here.
  template <class Message>
  bool ask_owner(node::ContextSlot owner, Message m, int pass_fd, Deadline deadline,
                 Fd* file = nullptr) {
    const auto answer = new_question(&m.question);
    return await_answer(owner, m.segment, m.question, answer, Encoded(m), pass_fd, deadline, file);
  }
  std::shared_ptr<InvalidationRound> new_question(uint64_t* question);
  bool await_answer(node::ContextSlot owner, int32_t segment, uint64_t question,
                    const std::shared_ptr<InvalidationRound>& answer, Bytes datagram, int pass_fd,
                    Deadline deadline, Fd* file);
  // Answers what was asked; `file`: comes along.
  void answer(node::ContextSlot to, int32_t segment, uint64_t question, Status status = Status::kOk,
              int file = -1);
  template <class Message>
  void answer_when_done(const BusFrom& from, const Message& m) {
    from.done.push_back([this, to = from.slot(), segment = m.segment, question = m.question] {
      answer(to, segment, question);
    });
  }
  Segment* own_segment(int32_t id) CMI_REQUIRES(mu_);  // null: there is none, or it is another's
  void on_bus_view(const BusFrom& from, const BusView& m);
  void on_bus_unview(const BusFrom& from, const BusUnview& m);
  void on_bus_barrier(const BusFrom& from, const BusBarrier& m);
  void scan_and_answer(const BusFrom& from, int32_t segment, uint64_t question, Segment* own,
                       const BusUnview* view) CMI_REQUIRES(mu_);
  void on_bus_publish(const BusFrom& from, const BusPublish& m);
  void on_bus_stored(const BusFrom& from, const BusStored& m);
  void on_bus_look(const BusFrom& from, const BusLook& m);
  void on_bus_in_flux(const BusFrom& from, const BusInFlux& m);
  void on_bus_in_flux_seen(const BusFrom& from, const BusInFluxSeen& m);
  void on_bus_file(const BusFrom& from, const BusFile& m);
  void on_bus_token(const BusFrom& from, const BusToken& m);
  void on_bus_shrunk(const BusFrom& from, const BusShrunk& m);
  void on_bus_answer(const BusFrom& from, const BusAnswer& m);
  // When all scans that are under way have been acknowledged.
  void after_scans(const std::function<void()>& then, Finished* done) CMI_REQUIRES(mu_);

  Parts parts_;
  Userfault tracked_, guarded_;
  Fd pagemap_;
  Mutex resize_mu_;
  Mutex mu_;
  std::map<int32_t, Segment> segments_ CMI_GUARDED_BY(mu_);
  std::map<uint64_t, Notification> notifications_ CMI_GUARDED_BY(mu_);
  std::map<ContextId, size_t> notifications_of_ CMI_GUARDED_BY(mu_);  // how many of those each owes
  size_t kept_bytes_ CMI_GUARDED_BY(mu_) = 0;                         // of what they say
  uint64_t next_notification_ CMI_GUARDED_BY(mu_) = 1;
  uint64_t lists_notified_ CMI_GUARDED_BY(mu_) = 0;  // of those: lists of pages in flux
  // Publications of stores by this node that are not acknowledged yet: a barrier that finds nothing
  // written because another one was faster waits for that one's (rule 15).
  std::vector<std::shared_ptr<InvalidationRound>> scans_ CMI_GUARDED_BY(mu_);
  // Of requests whose senders take direct acks: over when they say so, or all is acknowledged.
  std::vector<std::shared_ptr<InvalidationRound>> received_ CMI_GUARDED_BY(mu_);
  Secrets secrets_ CMI_GUARDED_BY(mu_);
  std::vector<Quarantined> quarantined_ CMI_GUARDED_BY(mu_);  // the oldest first
  uint64_t quarantined_bytes_ CMI_GUARDED_BY(mu_) = 0;
  using BusQuestion = std::pair<node::ContextSlot, uint64_t>;
  std::vector<BusQuestion> awaited_ CMI_GUARDED_BY(mu_);  // what is answered after scans
  // Questions to owners over the bus that wait for their answer.
  std::map<uint64_t, std::shared_ptr<InvalidationRound>> asked_ CMI_GUARDED_BY(mu_);
  uint64_t next_question_ CMI_GUARDED_BY(mu_) = random_u64();
  Fd hole_;  // an empty file: who touches a page mapped from it gets SIGBUS
  bool unseen_lists_ CMI_GUARDED_BY(mu_) = false;  // some watcher has not seen the last version
  std::atomic<uint64_t> uncovered_{0};
  std::map<uint64_t, std::shared_ptr<InvalidationRound>> calls_ CMI_GUARDED_BY(mu_);  // of the roll
  bool ending_ CMI_GUARDED_BY(mu_) = false;  // close() has begun
  // Pages of imports that neighbours have lost stores to, until they have said all.
  // By sender and segment.
  std::map<std::pair<ContextId, int32_t>, std::vector<uint32_t>> lost_beside_ CMI_GUARDED_BY(mu_);
  std::map<uint64_t, PendingDetach> pending_detaches_
      CMI_GUARDED_BY(mu_);                    // by the question that tells of it
  std::atomic<uint32_t> shared_segments_{0};  // owned ones with sharers, or attached ones of others
  Fd maps_ CMI_GUARDED_BY(mu_);  // /proc/self/maps; who reads on alone gets whole lines
};

template <class Predicate>
void Home::forget_sharers(Segment& s, Predicate which) {
  const bool was_shared = s.owned && s.shared();
  for (auto& h : s.sharers) {
    if (which(h)) s.directory.drop_all(h.regions);
  }
  std::erase_if(s.sharers, which);
  recount(s, was_shared);
}

}  // namespace cmi::memory
