// Puts the two sides of the protocol together in one context: fabrics, server, importer, home, the
// fault target and the service thread.
//
// The service thread polls the server (requests, notifications, acknowledgements), the links that
// owe an answer nobody waits for, the node bus and the watch over the peers; it runs the timers. It
// spins for a short while after work came in, then sleeps in poll. It never waits for a peer.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "core/memory/home/home.hpp"
#include "core/memory/importer/importer.hpp"
#include "core/memory/membership/membership.hpp"
#include "core/memory/vm/fault_threads.hpp"

namespace cmi::memory {

class Engine : public fabric::ServerHandler, public FaultTarget {
 public:
  struct Settings {
    bool fault_threads;  // else faults on imported views come as SIGBUS
    bool local;          // homes and importers of this machine share memory
    Nanos dead_after;    // silence after which a peer counts as dead
    uint64_t mem_max;    // bytes that segments of the node may take
  };
  // Takes over the ways by which others are reached and reach us.
  // kNotSupp: among others, fault_threads where the process may not have them.
  static Result<std::unique_ptr<Engine>> start(node::Node& node,
                                               std::vector<fabric::LocalInterface> interfaces,
                                               ContextId self, Settings settings,
                                               Observer& observer);
  ~Engine() override;

  Importer& importer() { return *importer_; }
  Home& home() { return *home_; }
  Membership& watch() { return *watch_; }
  ViewTable& views() { return views_; }
  const Stats& stats() const { return stats_; }
  Stats& stats() { return stats_; }
  std::vector<fabric::ListenerAddress> listeners() const { return server_->listeners(); }
  uint64_t messages_dropped() const { return server_->dropped(); }
  void wake();         // makes the service thread look at its timers
  void start_ticks();  // after a call that may have left something to the importer's timer
  // Ends the service thread. What this context owes to others is then left to its links' ends.
  void stop();
  // In a forked child, where nothing else of this is touched any more: lets go of what would make
  // the parent look alive after its death.
  void forget_in_child() {
    watch_->forget_in_child();
    server_->forget_in_child();
  }

  std::shared_ptr<const View> view_at(const void* addr) override { return views_.find(addr); }
  Exception on_fault(const View& view, const std::byte* addr, bool write, bool broken) override;
  Exception try_access(const View& view, const std::byte* addr, bool write,
                       const PageSeen* seen) override;
  void on_lease_alarm() override;
  emulate::Stop on_write_through(const View& view, const std::byte* addr,
                                 ucontext_t& uc) override;  // write_through_access.cpp

  bool on_hello(const fabric::ClientInfo&) override { return true; }
  void on_new_session(const fabric::ClientInfo& client) override;
  void on_request(const fabric::ClientInfo& client, uint64_t number, uint16_t type,
                  Reader payload) override;
  void on_notification(const ContextId& home, uint64_t secret, uint64_t number, uint16_t type,
                       Reader payload, const fabric::DirectAck& direct_ack) override;
  void on_acked_below(const ContextId& client, uint64_t below,
                      std::span<const uint64_t> behind) override;
  void on_ack(const ContextId& client, uint64_t number, Reader payload) override;
  bool may_sweep(const ContextId& client) override { return !home_->importers().knows(client); }

 private:
  emulate::Stop step_write_through(const std::byte* addr, ucontext_t& uc, Deadline deadline);
  Exception try_home_access(const View& view, const std::byte* addr, bool write);
  explicit Engine(node::Node& node) : node_(node) {}
  void serve();
  int take_datagrams();
  Nanos keep_time(Nanos t, bool woken);              // what is due; returns when there is more
  void answer(const node::Bus::Datagram& question);  // engine_report.cpp
  bool sleep(Nanos until);                           // true: woken by a descriptor
  bool nap_if_vain();                                // true: for nothing, and it has napped

  node::Node& node_;
  Stats stats_;
  ViewTable views_;
  std::vector<fabric::LocalInterface> interfaces_;  // one for each listener of server_
  unsigned vain_ = 0;                               // times that it woke for nothing, in a row
  bool blind_ = false;                              // some have no descriptor that could wake us
  std::unique_ptr<fabric::Server> server_;
  std::unique_ptr<Membership> watch_;
  std::unique_ptr<Importer> importer_;
  std::unique_ptr<Home> home_;
  emulate::Benches benches_;                     // for accesses to write-through views
  std::unique_ptr<FaultThreads> fault_threads_;  // null: faults come as SIGBUS
  Fd wake_;
  // Readable when wake_, the node's bus or a lifeline is. Each descriptor that a thread sleeps on
  // is looked at and let go of when it wakes, with all caches cold, before it comes to what has
  // woken it. Those of endpoints are slept on by themselves: in here they would cost each arrival.
  Fd wake_set_;
  std::atomic<bool> ticking_{false};  // the service thread looks at what is dirty every 10 ms
  std::atomic<bool> stop_{false};
  struct Times {
    Nanos tick = 0, tick_until = 0, sweep = now(), reap = 0, kept = 0,
          marks_due = 0;  // but for dues: the last one
  } times_;               // of the service thread alone
  std::thread thread_;
};

}  // namespace cmi::memory
