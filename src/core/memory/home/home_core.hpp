// What the parts of a home share: the lock, and what it guards. Each class here owns its data and
// keeps its own invariant; operations that span several take the lock, call them, and run what
// finished once the lock is free.
//
// The lock is never held over a wait for a peer. Classes with a lock of their own are leaves.
#pragma once

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
};

struct HomeCore {
  explicit HomeCore(HomeParts p) : parts(p) {}

  const HomeParts parts;
  KernelFiles files;
  SharedSegments shared_segments;
  NodeChannel channel{parts.node, parts.server};
  Quarantine quarantine;

  Mutex mu;
  SegmentTable segments CMI_GUARDED_BY(mu);
  AdoptedViews adopted CMI_GUARDED_BY(mu){files, parts.views};
  StoreTracker tracker{files, adopted, parts.node};  // its userfaultfds: without the lock, too
  InvalidationRounds rounds CMI_GUARDED_BY(mu){segments, shared_segments, parts.server,
                                               parts.watch};
  PageCovers covers{files, adopted, tracker};  // uncovered(): without the lock, too
  FluxTracker flux CMI_GUARDED_BY(mu){rounds, covers, channel};
  PendingDetaches pending_detaches CMI_GUARDED_BY(mu);
  bool ending CMI_GUARDED_BY(mu) = false;  // Home::close() has begun
};

}  // namespace cmi::memory
