// What the parts of the importing side share. Each class here owns its data, its lock and its
// invariant; operations that span several are functions that take the core, and classes that hold
// it. The order of the locks stands in doc/design/locking.md. None is held over a network wait but
// TokenInUse::mu, its adopt_mu and RegionClaims::mu, which application threads alone take.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/liveness/peer_watch.hpp"
#include "core/memory/importer/dirty_count.hpp"
#include "core/memory/importer/enabled_threads.hpp"
#include "core/memory/importer/import.hpp"
#include "core/memory/importer/import_table.hpp"
#include "core/memory/importer/links.hpp"
#include "core/memory/importer/losses.hpp"
#include "core/memory/importer/pending_answers.hpp"
#include "core/memory/importer/pending_stores.hpp"
#include "core/memory/importer/reconf_timeout.hpp"
#include "core/memory/importer/stranded_fetches.hpp"
#include "core/memory/importer/write_backs.hpp"
#include "core/memory/page/observer.hpp"
#include "core/memory/page/stats.hpp"
#include "core/memory/page/twin_pool.hpp"
#include "core/memory/vm/exception.hpp"
#include "core/memory/vm/lease_alarm.hpp"
#include "core/memory/vm/userfault.hpp"
#include "core/memory/vm/view_table.hpp"
#include "core/node/node.hpp"
#include "fabric/link.hpp"
#include "fabric/local_interface.hpp"
#include "fabric/server.hpp"

namespace cmi::memory {

struct ImporterParts {
  node::Node& node;
  const std::vector<fabric::LocalInterface>& interfaces;  // `server`'s listeners, in their order
  fabric::Server& server;
  fabric::Identity self;
  ViewTable& views;
  Stats& stats;
  liveness::PeerWatch& watch;
  bool fault_threads;  // the userfaultfd is read by threads; else faults come as SIGBUS
  Observer& observer;
  bool local = false;  // homes of this machine are asked for their pages (doc/design/local.md)
  uint64_t mem_max = UINT64_MAX;  // bytes that segments of the node may take
};

// What is under way that nobody waits for, or that homes have not heard of.
struct Traffic {
  std::atomic<uint64_t> reads_ahead{0};
  std::atomic<uint64_t> unanswered{0};  // messages of write-backs
  std::atomic<uint32_t> swap_fetches{0};
  std::atomic<bool> intents_unused{false};  // some import may have unused ones
  // Homes may not have heard of what is over with direct acks.
  std::atomic<bool> acked_below_unreported{false};
  std::atomic<Nanos> no_twin_told_at{0};  // in the trace; 0: never
};

struct ImporterCore {
  explicit ImporterCore(ImporterParts p) : parts(std::move(p)) {}

  const ImporterParts parts;
  Userfault userfault;
  TwinPool twins{TwinPool::chunks_of(parts.mem_max)};
  ReconfTimeout reconf_timeout{parts.watch};
  Links links;
  ImportTable imports;
  WriteBacks write_backs;
  Losses losses{parts.node, parts.observer, imports, write_backs};
  DirtyCount dirty{parts.fault_threads};
  EnabledThreads enabled;
  LeaseAlarm lease_alarm;
  PendingAnswers answers;
  PendingStores pending_stores;
  StrandedFetches stranded;
  Traffic traffic;
};

}  // namespace cmi::memory
