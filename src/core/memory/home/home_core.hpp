// What the parts of a home share: the table of segments, and the lock of the rounds with what it
// guards. Each class here owns its data and keeps its own invariant; operations that span several
// take the locks, call them, and run what finished once the locks are free.
//
// Each segment has locks of its own, which stand before `mu` (segment_lock.hpp): what takes long is
// done under one of those, and `mu` is held over looking at the rounds and sending. No lock is held
// over a wait for a peer. Classes with a lock of their own are leaves.
#pragma once

#include <atomic>

#include "core/base/lock.hpp"
#include "core/liveness/peer_watch.hpp"
#include "core/memory/home/adopted_views.hpp"
#include "core/memory/home/flux_tracker.hpp"
#include "core/memory/home/kernel_files.hpp"
#include "core/memory/home/page_covers.hpp"
#include "core/memory/home/pending_detaches.hpp"
#include "core/memory/home/quarantine.hpp"
#include "core/memory/home/rounds.hpp"
#include "core/memory/home/segment_table.hpp"
#include "core/memory/home/shared_segments.hpp"
#include "core/memory/home/store_tracker.hpp"
#include "core/memory/node_bus/node_channel.hpp"
#include "core/memory/page/local_imports.hpp"
#include "core/memory/page/observer.hpp"
#include "core/memory/page/stats.hpp"
#include "core/node/node.hpp"
#include "fabric/lock_order.hpp"
#include "fabric/server.hpp"

namespace cmi::memory {

// Tokens are registered with this listener's fabric; session keys each with their session's.
inline constexpr size_t kTokensListener = 0;

struct HomeParts {
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
  bool local = false;  // importers of this machine may map the segments (doc/design/local.md)
};

struct HomeCore {
  explicit HomeCore(HomeParts p) : parts(p) {}

  const HomeParts parts;
  KernelFiles files;
  SharedSegments shared_segments;
  NodeChannel channel{parts.node, parts.server};
  Quarantine quarantine;

  SegmentTable segments;
  AdoptedViews adopted{files, parts.views};
  StoreTracker tracker{files, adopted, parts.node};
  PageCovers covers{files, adopted, tracker};

  Mutex mu CMI_ACQUIRED_AFTER(lock_order::after_views)
      CMI_ACQUIRED_BEFORE(lock_order::after_rounds, fabric::lock_order::after_sessions);
  InvalidationRounds rounds CMI_GUARDED_BY(mu){segments, shared_segments, parts.server,
                                               parts.watch};
  FluxTracker flux{mu, rounds, covers, channel};
  PendingDetaches pending_detaches CMI_GUARDED_BY(mu);
  std::atomic<bool> ending{false};  // Home::close() has begun; set under mu
};

}  // namespace cmi::memory
