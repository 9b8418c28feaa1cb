// Pages in flux of client-inconsistent segments, at their home: what becomes of the dirty intents
// of an importer that dies, and which processes are notified (rules 18 and 21).
//
// A page in flux is covered in the views of this node's processes (page_covers.hpp), and listed at
// the importers, which ask before they access it. Other processes of the node watch the list
// (flux_watchers.hpp). What is done with a segment is done under both of its locks where its pages
// in flux change at the owner, else under `views_mu`. HomeCore::mu is taken here, for the rounds:
// pages are covered without it.
#pragma once

#include <atomic>
#include <vector>

#include "core/memory/home/page_covers.hpp"
#include "core/memory/home/rounds.hpp"
#include "core/memory/node_bus/node_channel.hpp"

namespace cmi::memory {

class FluxTracker {
 public:
  FluxTracker(Mutex& mu, InvalidationRounds& rounds, PageCovers& covers, NodeChannel& channel)
      : mu_(mu), rounds_(rounds), covers_(covers), channel_(channel) {}

  // A fenced client's dirty intents become pages in flux; *p is settled when everybody knows.
  // `instance`: of the import that is cut off, while the client lives on; 0: of all, it is dead.
  void lose_intents(Segment& s, const ContextId& client, uint32_t instance, const RoundPtr& p)
      CMI_EXCLUDES(mu_);
  // s.flux.pages has changed, at the owner; *p is settled when the processes of the node know.
  // Under HomeCore::mu.
  void changed(Segment& s, const RoundPtr& p);

  // At the owner: another process watches the segment. False: it was not sent what is in flux now.
  bool add_watcher(Segment& s, node::ContextSlot slot);
  // It has acted on the list of this version.
  void seen(Segment& s, node::ContextSlot slot, uint64_t version, Finished* done) CMI_EXCLUDES(mu_);
  // Whether some watcher of this segment has still not seen the last version.
  bool remind(Segment& s, Nanos t, Finished* done) CMI_EXCLUDES(mu_);
  bool unseen() const { return unseen_.load(); }
  // The caller looks at all segments, and says when some watcher is left.
  bool take_unseen() { return unseen_.exchange(false); }
  void set_unseen() { unseen_.store(true); }  // some watcher has not seen the last version

  // In another process than the owner: the list of this version has come. The file is not trusted.
  void take_list(Segment& s, uint64_t version, const Fd& list) CMI_EXCLUDES(mu_);
  // Reports to the owner that its last list has been acted on: until it knows, it looks for no
  // stores there. False: that did not fit into its queue; the next barrier comes after it.
  bool report_seen(Segment& s);

 private:
  void put_in_flux(Segment& s, const ContextId& except, std::vector<PageRange> pages,
                   const RoundPtr& p) CMI_EXCLUDES(mu_);
  FluxWatchers::Sent send_list(Segment& s, node::ContextSlot slot);

  Mutex& mu_;
  InvalidationRounds& rounds_ CMI_TSA(guarded_by(mu_));
  PageCovers& covers_;
  NodeChannel& channel_;
  std::atomic<bool> unseen_{false};
};

}  // namespace cmi::memory
