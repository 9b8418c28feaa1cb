// Events that wait for the client. Never drops one, and never holds more than segments and peers
// have it hold: what comes again before it was taken becomes part of what waits.
//
// Order: HW, then CMAP, then the rest; each as they came. The descriptor is readable while one
// waits. Threads: any, the fault handler included; mu_ is a leaf lock, held for moments.
#pragma once

#include <list>
#include <memory>

#include "core/base/fd.hpp"
#include "core/base/lock.hpp"
#include "core/base/status.hpp"
#include "events/event.hpp"

namespace cmi::events {

// The level between the locks of Events and Queue, as those of core/memory/importer/lock_order.hpp.
namespace lock_order {
extern Mutex after_events;
}

class Queue {
 public:
  static Result<std::unique_ptr<Queue>> open();  // kNoMem: no descriptor
  int descriptor() const { return ready_.get(); }

  void push(std::unique_ptr<Event> event);
  // The next event's room(), or false when none waits.
  bool next(size_t* room);
  // Takes the next event if it needs no more than that (it may have grown); else null.
  std::unique_ptr<Event> take(size_t room);
  size_t waiting(Event::Rank rank);
  // The segment is marked for deletion: no event names it any more.
  void forget(int32_t segment);

 private:
  Queue() = default;
  using List = std::list<std::unique_ptr<Event>>;
  List* first_list() CMI_REQUIRES(mu_);  // the one that the next event stands in, or null
  void show() CMI_REQUIRES(mu_);         // makes the descriptor say whether one waits

  Fd ready_;
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_events);
  List waiting_[Event::kRanks] CMI_GUARDED_BY(mu_);
  bool shown_ CMI_GUARDED_BY(mu_) = false;
};

}  // namespace cmi::events
