// The other processes of the node that have views of a segment, at its owner: each is sent the
// list of pages in flux, a file that is made anew with each change and known by its version, so
// that no order of datagrams matters. What changed is known to all when each watcher has acted on
// the last version, or has ended.
//
// Pure: the sending is the caller's. The segment's `views_mu` guards it, and where rounds are
// changed HomeCore::mu is held as well.
#pragma once

#include <functional>
#include <vector>

#include "core/base/clock.hpp"
#include "core/memory/home/invalidation_round.hpp"
#include "core/memory/page/page_set.hpp"
#include "core/node/node.hpp"

namespace cmi::memory {

class FluxWatchers {
 public:
  enum class Sent { kYes, kNo, kEnded };  // kNo: its queue is full; kEnded: the process is gone
  using Send = std::function<Sent(node::ContextSlot)>;
  static constexpr Nanos kRemind = 20 * kMilli;  // then ever more rarely

  uint64_t version() const { return version_; }  // of the list, raised with each change

  // The pages in flux are these now: all watchers are sent the list, and `round` waits for each.
  void changed(const PageSet& in_flux, const RoundPtr& round, Nanos t, const Send& send);
  // Adds the process, once. False: it could not be sent what is in flux now.
  bool add(node::ContextSlot slot, const PageSet& in_flux, Nanos t, const Send& send);
  // The process has acted on this version. Returns the pages that it may have had covered until
  // now and that are in flux no more; *over: what waited for it. An older version: neither.
  std::vector<PageRange> seen(node::ContextSlot slot, uint64_t version, const PageSet& in_flux,
                              std::vector<RoundPtr>* over);
  // Sends the list again where it is overdue. *over: what waited for watchers that have ended.
  // True: some watcher has not seen the last version.
  bool remind(Nanos t, const Send& send, std::vector<RoundPtr>* over);

  // What the process may have covered: no scan finds stores there. Null: it watches nothing.
  const PageSet* covered(node::ContextSlot slot) const;
  void also_covered(node::ContextSlot slot, const PageSet& pages);
  bool empty() const { return watchers_.empty(); }

 private:
  struct Watcher {
    node::ContextSlot slot{};
    PageSet covered;
    uint64_t seen = 0;         // version that it has acted on
    Nanos born = 0, sent = 0;  // the last version: when it was made, and sent last
    std::vector<RoundPtr> waiting;
  };
  bool send_to(Watcher& w, Nanos t, const Send& send);
  Watcher* find(node::ContextSlot slot);

  uint64_t version_ = 0;
  std::vector<Watcher> watchers_;
};

}  // namespace cmi::memory
