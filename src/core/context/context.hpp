// The process's context: its node, its engine, its threads and the objects clients hold. It makes
// the parts and hands them to each other. The one mutable global of the library is the pointer that
// finds it (lifetime.hpp).
//
// Lifetime: made by the first cmi_ini, destroyed by the last fini. A registered thread keeps it
// alive. The data lies in the parts, each with its own lock, which is released before the engine is
// asked for anything that waits.
#pragma once

#include <cmi.h>

#include <memory>
#include <string>
#include <vector>

#include "core/base/log.hpp"
#include "core/context/exporting.hpp"
#include "core/context/holder_names.hpp"
#include "core/context/segments.hpp"
#include "core/context/thread_barriers.hpp"
#include "core/context/threads.hpp"
#include "core/rendezvous/pmix_offers.hpp"
#include "core/rendezvous/tcp_offers.hpp"
#include "events/map_maker.hpp"

namespace cmi::context {

class Context : private events::Host {
 public:
  // `table10`/`table11`: what CMIFN reaches, given by the C entry. start.cpp
  static Result<Context*> start(uint16_t verno, const cmi_cbs* callbacks,
                                const struct cmi_fns_10* table10, const struct cmi_fns_11* table11);

  // lifetime.cpp
  // The process's context, if `ctxt` is it. *forked: it was this process's parent's.
  static Context* find(const cmi_ctxt* ctxt, bool* forked);
  static Context* current();
  // Where the process ends, last of all.
  static void process_exits();
  // Closes what would make the context look alive, and forgets it: in a forked child, where it
  // is the parent's, and of a process of a simulation that was killed.
  static void forget_in_child();

  // ini_th: finds the context and joins it in one step, beside a last fini.
  static Status join(const cmi_ctxt* ctxt);
  // Deregisters the calling thread; the last one ends the context.
  Status leave_thread();

  cmi_ctxt* handle() const { return handle_; }
  memory::Engine& engine() { return *engine_; }
  events::Events& events() { return *events_; }
  Segments& segments() { return parts_->segments; }
  Sharing& sharing() { return parts_->sharing; }
  Barriers& barriers() { return parts_->barriers; }
  Holders& holders() { return parts_->holders; }
  CacheSizes& cache_sizes() { return parts_->cache_sizes; }
  Reservation& reservation() { return parts_->reservation; }
  rendezvous::TcpOffers& tcp_offers() { return tcp_offers_; }
  rendezvous::PmixOffers& pmix_offers() { return pmix_offers_; }
  const std::string& secret() const { return environment_.secret; }

  void info(cmi_ctl_cfg* cfg);
  Status request_map(uint64_t id);
  Status set_reconf_timeout(uint32_t milliseconds);

 private:
  struct Parts {
    explicit Parts(const Services& s) : services(s) {}
    const Services services;
    ImportedSegments imports;
    Reservation reservation{services.node};
    CacheSizes cache_sizes{services, imports};
    Segments segments{services, imports, cache_sizes, reservation};
    Sharing sharing{services, imports, cache_sizes};
    Barriers barriers{services};
    Holders holders{services};
  };

  Context() = default;
  ~Context() override;
  uint16_t version() const { return handle_->base.verno; }

  // Start: start.cpp.
  static void prepare_process();
  void trace_by_environment(const cmi_cbs* callbacks, TraceSink sink);
  Status make_handle(uint16_t version, const struct cmi_fns_10* table10,
                     const struct cmi_fns_11* table11);
  Status join_node();
  Status start_engine();
  void trace_start() const;

  Status join_thread();
  void end();
  void leave_imports(const std::vector<ImportedSegments::Import>& imports);
  static void thread_exits(void* thread);
  static void before_fork() CMI_TSA(no_thread_safety_analysis);
  static void parent_after_fork() CMI_TSA(no_thread_safety_analysis);
  static void child_after_fork();

  cmi_ctxt* client_handle() override { return handle_; }
  void* allocate(size_t bytes) override { return allocator_.get(bytes); }
  void release(void* memory) override { allocator_.put(memory); }
  std::byte* lowest_view(int32_t segment) override;

  cmi_ctxt* handle_ = nullptr;
  Allocator allocator_;
  Environment environment_;
  ContextId id_;
  std::unique_ptr<node::Node> node_;
  std::unique_ptr<events::Events> events_;
  std::unique_ptr<memory::Engine> engine_;
  std::unique_ptr<events::MapMaker> map_maker_;
  std::unique_ptr<Parts> parts_;
  rendezvous::TcpOffers tcp_offers_;
  rendezvous::PmixOffers pmix_offers_;
  ThreadList threads_;
};

}  // namespace cmi::context
