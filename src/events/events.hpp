// What clients are notified of asynchronously: takes what the engine observes, keeps it in the
// queue, and hands it out as the client's objects, in the client's memory, until they come back.
//
// Threads: any. What the engine calls (Observer) takes leaf locks alone and calls nothing of the
// client's; the client's allocator is called by get() and give_back() on the client's own threads,
// with no lock held and no signal blocked.
#pragma once

#include <cmi.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"
#include "core/memory/page/observer.hpp"
#include "events/event_queue.hpp"

namespace cmi::events {

// What the composition root does for us.
class Host {
 public:
  virtual ~Host() = default;
  virtual cmi_ctxt* client_handle() = 0;
  virtual void* allocate(size_t bytes) = 0;  // the client's allocator; null: out of memory
  virtual void release(void* memory) = 0;
  virtual std::byte* lowest_view(int32_t segment) = 0;  // null: it has none here
};

class Events final : public memory::Observer {
 public:
  static Result<std::unique_ptr<Events>> open(Host& host);
  ~Events() override;  // what the client has not returned goes with us

  int descriptor() const { return queue_->descriptor(); }
  // Null: none waits. kNoMem: the event stays for the next call.
  Result<cmi_event*> get();
  // False: it is none of those that are out. Aborts the process as CMI_EVENT_RET_FAILED asks for.
  bool give_back(cmi_event* event, cmi_event_ret status);

  void map(uint64_t request, const std::vector<access::NaddrInfo>& cut_off);
  size_t maps_waiting() { return queue_->waiting(Event::kConnectivity); }
  // The client has given the segment a new token: its next failure is an event again.
  void recovered(int32_t segment);
  // The segment is marked for deletion.
  void forget(int32_t segment);

  void importer_down(const access::NaddrInfo& who, std::vector<int32_t> segments) override;
  void home_down(const access::NaddrInfo& who, std::vector<int32_t> segments) override;
  void stores_lost(int32_t segment, std::vector<uint32_t> pages, bool local) override;
  void unreachable(const access::NaddrInfo& who) override;
  void quiesced(int32_t segment, std::function<void()> returned) override;
  void resumed(int32_t segment) override;

 private:
  struct Out {
    cmi_event_type type;
    std::function<void()> returned;
  };
  Events(Host& host, std::unique_ptr<Queue> queue) : host_(host), queue_(std::move(queue)) {}
  void context_down(cmi_event_type type, const access::NaddrInfo& who,
                    std::vector<int32_t> segments);

  Host& host_;
  const std::unique_ptr<Queue> queue_;
  // A leaf, except that the queue is pushed to under it.
  Mutex mu_ CMI_ACQUIRED_AFTER(memory::lock_order::after_reports)
      CMI_ACQUIRED_BEFORE(lock_order::after_events);
  std::map<cmi_event*, Out> out_ CMI_GUARDED_BY(mu_);
  // Segments whose store failure the client has taken and not mended: no further event names them.
  std::set<int32_t> failed_ CMI_GUARDED_BY(mu_);
  // Peers that an unsolicited map has named since they were last reached.
  std::set<ContextId> cut_off_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::events
