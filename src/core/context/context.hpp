// The process's context: its node, its engine, its threads and the objects clients hold. The one
// mutable global of the library is the pointer that finds it.
//
// Lifetime: made by the first cmi_ini, destroyed by the last fini. A registered thread keeps it
// alive. Locks: mu_ guards the tables here; it is released before the engine is asked for anything
// that waits.
#pragma once

#include <cmi.h>

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "core/access/handles.hpp"
#include "core/base/lock.hpp"
#include "core/context/environment.hpp"
#include "core/memory/engine/engine.hpp"
#include "core/node/node.hpp"
#include "events/events.hpp"
#include "events/map_maker.hpp"

namespace cmi::context {

// The client's allocator, or the library's own. Objects that clients hold come from here.
struct Allocator {
  void* (*alloc)(size_t, void*) = nullptr;
  void (*free)(void*, void*) = nullptr;
  void* arg = nullptr;
  void* get(size_t n) const;
  void put(void* p) const;
};

// One per registered thread, from the client's allocator.
struct Thread {
  class Context* context = nullptr;
  memory::LossMark loss;
  memory::PendingSwaps pending_swaps;
  struct Epoch* epoch = nullptr;  // open flush epoch
  Thread* next = nullptr;         // of the same context, guarded by its mu_
};

// What cmi_fb points to.
struct Epoch {
  Thread* owner = nullptr;
  memory::LossMark loss;  // of its own: a barrier in between does not swallow what it has to report
};

extern thread_local Thread* t_thread;  // of this thread, or null
extern thread_local cmi_error t_error;

class Context : private events::Host {
 public:
  // `table10`/`table11`: what CMIFN reaches, given by the C entry.
  static Result<Context*> start(uint16_t verno, const cmi_cbs* callbacks,
                                const struct cmi_fns_10* table10, const struct cmi_fns_11* table11);
  // The process's context, if `ctxt` is it. *forked: it was this process's parent's.
  static Context* find(const cmi_ctxt* ctxt, bool* forked);
  static Context* current();

  // Where the process ends, last of all.
  static void process_exits();

  cmi_ctxt* handle() const { return handle_; }
  uint16_t version() const { return handle_->base.verno; }
  const Allocator& allocator() const { return allocator_; }
  memory::Engine& engine() { return *engine_; }
  node::Node& node() { return *node_; }

  // ini_th: finds the context and joins it in one step, beside a last fini.
  static Status join(const cmi_ctxt* ctxt);
  Status join_thread();
  // Deregisters the calling thread; the last one ends the context. *ended tells.
  Status leave_thread();

  // segments.cpp
  Result<int32_t> seg_get(size_t size, int32_t flags);
  Result<int32_t> seg_getva(void* va, size_t size, int32_t flags);
  Result<void*> seg_at(int32_t seg, void* addr, int32_t flags);
  Status seg_dt(int32_t seg, void* addr);
  Status seg_remove(int32_t seg);
  Status set_cache_size(int32_t seg, size_t bytes);
  Result<size_t> cache_size(int32_t seg);
  Status seg_status(int32_t seg, cmi_ds* ds);
  Status seg_check(int32_t seg, cmi_ds* ds);
  Status seg_recover(int32_t seg, const cmi_ds& ds);
  void assume_client_consistent() { client_consistent_.store(true); }  // of later seg_get
  Status seg_info(int32_t seg, cmi_ds* ds);
  Status set_break(int32_t seg, size_t to);
  Status attribute(int32_t seg, int32_t cmd, size_t* size);
  void info(cmi_ctl_cfg* cfg);

  // reservations.cpp
  Status reserve_memory(cmi_cfg_mreq* request);  // mem_allocd is set on failure, too
  Status use_reservation(uint64_t key);
  Status delete_reservation();

  // sharing.cpp
  Result<cmi_rseg*> seg_exp(int32_t seg, int32_t attrib);
  Status rseg_del(const cmi_rseg* rseg);
  Result<int32_t> seg_imp(const cmi_rseg* rseg);
  Status set_token(int32_t seg, const cmi_token* token);
  Result<cmi_token*> tok_new(int32_t seg, const cmi_naddr* naddr, uint32_t rights);
  Result<cmi_token*> tok_newva(int32_t seg, const void* va, size_t size, const cmi_naddr* naddr,
                               uint32_t rights);
  Status tok_del(const cmi_token* token);

  // notifications.cpp
  Result<cmi_event*> next_event() { return events_->get(); }
  bool return_event(cmi_event* event, cmi_event_ret status) {
    return events_->give_back(event, status);
  }
  int event_descriptor() const { return events_->descriptor(); }
  Status request_map(uint64_t id);
  Status set_reconf_timeout(uint32_t milliseconds);

  // barriers.cpp
  Status barrier() { return barrier(t_thread->loss); }
  Result<cmi_fb> open_epoch();
  Status flush_epoch(cmi_fb epoch);
  Status close_epoch(cmi_fb epoch);
  struct Raised {  // an exception that the C entry has to raise
    memory::Exception exception = memory::Exception::kNone;
    bool final = false;  // the call must not be tried again after it
    const void* addr = nullptr;
    int32_t segment = 0;
  };
  Status cflush(void* const* addrs, int32_t n, Raised* raised);
  // `call` is one and the same for all tries of a call, and of no other that has not returned.
  Status cas(uint64_t* addr, uint64_t expected, uint64_t desired, const void* call, bool again,
             uint64_t* found, Raised* raised);

 private:
  Status barrier(memory::LossMark& mark);
  Status barrier_before_swap();
  Status barrier_before_swap(const memory::View& view, uint64_t* addr, uint64_t expected,
                             uint64_t desired, memory::PendingSwap* pending);
  // What the registry says of a segment. kInval: there is none; kReconfig: the registry was not to
  // be had.
  Result<node::SegmentInfo> known(int32_t seg);
  struct Attached {
    int32_t segment = 0;
    node::Attachment attachment{};
    std::shared_ptr<const memory::View> imported;  // null: a view of a home segment
  };
  struct Imported {
    std::shared_ptr<memory::Import> import;
    bool ours = false;     // this process called seg_imp
    bool removed = false;  // CMI_SEG_RM was called on it
    int views = 0;
  };
  struct Issued {  // a handle or token that a client holds
    void* object = nullptr;
    bool token = false;
    int32_t segment = 0;
  };

  Context() = default;
  ~Context() override;
  cmi_ctxt* client_handle() override { return handle_; }
  void* allocate(size_t bytes) override { return allocator_.get(bytes); }
  void release(void* memory) override { allocator_.put(memory); }
  std::byte* lowest_view(int32_t segment) override;
  void end();
  void leave_imports();
  static void before_fork() CMI_TSA(no_thread_safety_analysis);
  static void parent_after_fork() CMI_TSA(no_thread_safety_analysis);
  static void child_after_fork();
  static void thread_exits(void* thread);
  Result<std::shared_ptr<memory::Import>> import_of(int32_t seg);
  void leave_import_if_unused(int32_t seg);
  void start_cache(const std::shared_ptr<memory::Import>& import) CMI_REQUIRES(mu_);
  Result<void*> issue(size_t size, bool token, int32_t segment);
  // `part`: nullptr for the whole segment.
  Result<cmi_token*> make_token(int32_t seg, const access::TokenPart* part, const cmi_naddr* naddr,
                                uint32_t rights);
  bool revoke_issued(const void* object, Bytes content, bool token);
  Nanos call_timeout() const { return engine_->importer().reconf_timeout().get(); }
  memory::JoinTime join_time() const;
  // For a home that lives: what waits for it goes on for so long.
  Nanos longest_wait() const;

  cmi_ctxt* handle_ = nullptr;
  Allocator allocator_;
  Environment environment_;
  ContextId id_;
  std::unique_ptr<node::Node> node_;
  std::unique_ptr<events::Events> events_;
  std::unique_ptr<memory::Engine> engine_;
  std::unique_ptr<events::MapMaker> map_maker_;

  std::atomic<bool> client_consistent_{false};

  Mutex reservation_mu_;                  // over the making of one, outside of the node's lock
  std::atomic<uint64_t> reservation_{0};  // key of the one that segments are made in; 0: none

  Mutex mu_;
  Thread* threads_ CMI_GUARDED_BY(mu_) = nullptr;
  int thread_count_ CMI_GUARDED_BY(mu_) = 0;
  std::map<void*, Attached> attached_ CMI_GUARDED_BY(mu_);
  std::map<int32_t, Imported> imported_ CMI_GUARDED_BY(mu_);
  std::vector<Issued> issued_ CMI_GUARDED_BY(mu_);
  // CMI_CTL_CACHE_RSEG_SET: for imports to come (0: never set), and what was said of own segments.
  size_t default_cache_ CMI_GUARDED_BY(mu_) = 0;
  std::map<int32_t, size_t> export_cache_ CMI_GUARDED_BY(mu_);
};

// A barrier of the process's context and thread, or Status::kInit. For the macros, which take none.
Status barrier_here();

// A barrier waits for homes and importers as long as they answer; who does not is declared dead
// first, and what is owed for so much longer counts as lost.
// The least that a home is given to answer an import, however short the client's own timeout is.
inline constexpr Nanos kFirstContact = 5 * kSecond;
inline constexpr Nanos kAfterVerdict = 5 * kSecond;
inline constexpr Nanos kRevokeTimeout = 2 * kSecond;
inline constexpr size_t kMaxSegmentSize = size_t{1} << 43;  // 2^31 pages

}  // namespace cmi::context
