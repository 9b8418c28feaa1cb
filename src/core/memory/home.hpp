// The home side of the coherence protocol: segments of this node that this process made or
// attached, their exports and tokens, the importers that hold pages, and publications.
//
// Files: home.cpp (segments and views), export.cpp (handles, tokens, revocation, removal),
// requests.cpp (what importers ask), publish.cpp (notices and their acknowledgements),
// home_barrier.cpp (stores of this node: tracking, barriers, CAS; the node bus).
//
// Only the process that made a segment exports and publishes it. Other processes of the node attach
// the same file; they register their views with the maker over the node bus, and their barriers and
// swaps ask it to publish.
//
// Threads: any; requests and acknowledgements come from whoever polls the server. One lock, mu_; it
// is never held over a wait, and answers go out after it is released where they call back.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/access/handles.hpp"
#include "core/memory/importer.hpp"
#include "core/memory/regions.hpp"
#include "core/memory/stats.hpp"
#include "core/memory/userfault.hpp"
#include "core/memory/view_table.hpp"
#include "core/memory/watch.hpp"
#include "core/memory/wire.hpp"
#include "core/node/node.hpp"
#include "fabric/server.hpp"

namespace cmi::memory {

inline constexpr uint32_t kMaxTokens = 16384;  // of a context
inline constexpr uint32_t kMaxTokensPerSegment = 16384;
inline constexpr uint32_t kMaxExports = 1024;
inline constexpr size_t kMaxHolders = 4096;  // imports of one segment

// Datagrams between contexts of one node.
enum BusWhat : uint8_t {
  kBusView = 1,      // a: address, b: length; a pagemap descriptor comes along
  kBusUnview = 2,    // a: address, b: length; scanned before it is forgotten
  kBusBarrier = 3,   // publish what this node stored
  kBusPublish = 4,   // a: page that was swapped through a service view
  kBusStored = 5,    // a: number of page ranges that follow, stored to and not found by a scan
  kBusAnswer = 0x80  // question is done
};

class Home {
 public:
  struct Parts {
    node::Node& node;
    fabric::Fabric& serving;
    fabric::Server& server;
    std::string provider;
    ContextId self;
    NodeId node_id;
    ViewTable& views;
    Stats& stats;
    Watch& watch;
  };
  static Result<std::unique_ptr<Home>> open(Parts parts);
  ~Home();

  // home.cpp
  Result<int32_t> create(uint64_t size, int32_t flags, bool reserve);
  bool owns(int32_t id);
  Result<void*> attach(int32_t id, uint64_t size, void* addr, bool read_only, Deadline deadline);
  // kInval: nothing of that segment is attached at exactly this address.
  Status detach(int32_t id, void* addr, Deadline deadline);
  // The home view that `addr` lies in: its segment, or 0.
  int32_t segment_at(const void* addr, size_t* offset, bool* read_only);
  uint32_t exports();

  // export.cpp
  Result<access::RsegInfo> export_segment(int32_t id, int32_t flags, int32_t attrib);
  Result<access::TokenInfo> new_token(int32_t id, bool any_node, NodeId node, uint32_t rights);
  Status delete_token(const access::TokenInfo& token, Deadline deadline);
  // Tells importers that the segment is marked for deletion.
  void removed(int32_t id, Deadline deadline);
  // Ends every export, as the end of the process would.
  void close(Deadline deadline);

  // home_barrier.cpp
  Status barrier(Deadline deadline);
  Result<uint64_t> cas(int32_t id, size_t offset, uint64_t expected, uint64_t desired,
                       Deadline deadline);
  void on_datagram(node::Node::Datagram datagram);

  // From the server's handler.
  void on_new_session(const fabric::ClientInfo& client);
  void on_request(const fabric::ClientInfo& client, uint64_t number, uint16_t type, Reader in);
  void on_ack(const ContextId& client, uint64_t number, Reader let_go);
  bool holds(const ContextId& client);  // some import of it is known here

  // For the watch. Since when importers owe acknowledgements; 0: this one owes none.
  void owing(std::map<ContextId, Nanos>* since);
  Nanos owed_since(const ContextId& client);
  // It is dead, or has said goodbye: fenced, and nobody waits for it any more. Returns the segments
  // that it had imported.
  std::vector<int32_t> forget(const ContextId& client, bool goodbye);

  // Service thread.
  void tick(Nanos t);
  bool busy();

 private:
  struct Token {
    access::TokenInfo info;
    std::unique_ptr<fabric::Region> region;
    bool revoked = false;
  };
  struct Holder {  // one import of one client
    ContextId client;
    uint32_t instance = 0;
    uint64_t token = 0;  // id; 0: none presented, or revoked
    uint32_t rights = 0;
    bool could_write = false;                 // once, with some token
    std::unique_ptr<fabric::Region> session;  // its own registration (a fence closes it)
    HeldRegions regions;
  };
  struct HomeView {
    std::byte* addr = nullptr;
    size_t len = 0;
    bool read_only = false;
    bool armed = false;                   // stores are noted, by the kernel or in guarded->stores
    std::shared_ptr<const View> guarded;  // for the fault handler; see View
  };
  struct ForeignView {  // of another process of this node
    node::ContextSlot slot{};
    uint64_t addr = 0, len = 0;
    Fd pagemap;
  };
  struct Segment {
    int32_t id = 0;
    uint64_t uid = 0, size = 0;
    int32_t flags = 0, attrib = 0;
    bool owned = false, exported = false, removed = false;
    node::ContextSlot owner{};
    Fd file;
    Mapping service;
    std::map<uint64_t, Token> tokens;
    std::vector<Holder> holders;
    Directory directory;
    std::vector<HomeView> views;
    std::vector<ForeignView> foreign;
    bool held() const;  // somebody may have pages of it
  };
  struct Publication {
    int waiting = 0;
    std::function<void()> finished;  // run once, without mu_
    fabric::Op done;                 // for local waiters
  };
  struct Notice {
    ContextId client;
    NoticeType type{};
    uint64_t uid = 0;  // of the segment, and which import of it
    uint32_t instance = 0;
    std::vector<std::byte> payload;
    std::shared_ptr<Publication> publication;
    Nanos born = 0, sent = 0;
  };
  using Finished = std::vector<std::function<void()>>;

  explicit Home(Parts parts) : parts_(std::move(parts)) {}
  Segment* find(int32_t id) CMI_REQUIRES(mu_);
  Segment* find_uid(uint64_t uid) CMI_REQUIRES(mu_);
  template <class Predicate>
  void forget_holders(Segment& s, Predicate which) CMI_REQUIRES(mu_);
  Holder* find_holder(Segment& s, const ContextId& client, uint32_t instance) CMI_REQUIRES(mu_);
  Status map_service(Segment& s) CMI_REQUIRES(mu_);
  void arm(Segment& s) CMI_REQUIRES(mu_);
  void arm(HomeView& v) CMI_REQUIRES(mu_);
  static void reply(fabric::Server& server, const ContextId& client, uint64_t number, WireStatus s,
                    Bytes more = {});

  // publish.cpp. Collects what finished in *done; the caller runs that after releasing mu_.
  std::shared_ptr<Publication> publish(Segment& s, const ContextId& except, uint32_t instance,
                                       const std::vector<PageRange>& ranges,
                                       std::function<void()> finished, Finished* done)
      CMI_REQUIRES(mu_);
  void tell(const std::shared_ptr<Publication>& p, const Segment& s, const Holder& h,
            NoticeType type, Bytes payload) CMI_REQUIRES(mu_);
  void settle(const std::shared_ptr<Publication>& p, Finished* done) CMI_REQUIRES(mu_);
  void forget_content(Segment& s, const ContextId& client, Finished* done) CMI_REQUIRES(mu_);
  void forget_client(const ContextId& client, Finished* done) CMI_REQUIRES(mu_);
  void tell_it_is_over(const ContextId& client);
  bool wait(Publication& p, Deadline deadline);
  static void run(Finished& done);

  // requests.cpp
  WireStatus check(const ContextId& client, uint64_t uid, uint32_t instance, uint32_t right,
                   Segment** s, Holder** h) CMI_REQUIRES(mu_);
  void on_present(const fabric::ClientInfo& client, uint64_t number, Reader in);
  void on_publish(const fabric::ClientInfo& client, uint64_t number, Reader in, RequestType type);
  void on_hold(const fabric::ClientInfo& client, uint64_t number, Reader in);
  void on_repair(const fabric::ClientInfo& client, uint64_t number, Reader in);
  void on_cas(const fabric::ClientInfo& client, uint64_t number, Reader in);

  // home_barrier.cpp
  // The pages of these ranges that this node has stored to since they were looked at last.
  std::vector<PageRange> scan(Segment& s, const std::vector<PageRange>& ranges) CMI_REQUIRES(mu_);
  // Nobody needs to hear of what was stored to these pages until now.
  void forget_stores(Segment& s, const std::vector<PageRange>& ranges) CMI_REQUIRES(mu_);
  std::shared_ptr<Publication> scan_and_publish(Segment& s, Finished* done) CMI_REQUIRES(mu_);
  std::shared_ptr<Publication> publish_scan(Segment& s, const std::vector<PageRange>& ranges,
                                            Finished* done) CMI_REQUIRES(mu_);
  bool send_stored(Segment& s) CMI_REQUIRES(mu_);
  bool tell_stored(int32_t id, Deadline deadline);
  bool ask_owner(node::ContextSlot owner, uint8_t what, int32_t segment, uint64_t a, uint64_t b,
                 int pass_fd, Deadline deadline);

  Parts parts_;
  Userfault tracked_, guarded_;
  Fd pagemap_;
  Mutex mu_;
  std::map<int32_t, Segment> segments_ CMI_GUARDED_BY(mu_);
  std::map<uint64_t, Notice> notices_ CMI_GUARDED_BY(mu_);
  uint64_t next_notice_ CMI_GUARDED_BY(mu_) = 1;
  // Publications of stores by this node that are not acknowledged yet: a barrier that finds nothing
  // written because another one was faster waits for that one's (rule 15).
  std::vector<std::shared_ptr<Publication>> scans_ CMI_GUARDED_BY(mu_);
  // Questions to owners over the bus that wait for their answer.
  std::map<uint64_t, std::shared_ptr<Publication>> asked_ CMI_GUARDED_BY(mu_);
  uint64_t next_question_ CMI_GUARDED_BY(mu_) = 1;
  std::atomic<uint32_t> held_segments_{0};  // owned ones with holders, or attached ones of others
};

template <class Predicate>
void Home::forget_holders(Segment& s, Predicate which) {
  const bool was_held = s.owned && s.held();
  for (auto& h : s.holders) {
    if (which(h)) s.directory.drop_all(h.regions);
  }
  std::erase_if(s.holders, which);
  if (was_held && !s.held()) held_segments_.fetch_sub(1);
}

}  // namespace cmi::memory
