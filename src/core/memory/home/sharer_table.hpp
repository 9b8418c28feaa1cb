// The importers of one segment, at its home: a sharer is one import of one client.
// They are changed under the segment's lock `mu` and HomeCore::mu, so that either is enough to read
// them: a request is served under the first alone. What says [rounds] is HomeCore::mu's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/memory/home/local_importer.hpp"
#include "core/memory/page/directory.hpp"
#include "core/memory/page/intent_map.hpp"
#include "core/memory/page/update_protocol.hpp"
#include "core/memory/wire/limits.hpp"
#include "fabric/server.hpp"

namespace cmi::memory {

struct SharerId {
  ContextId client;
  NodeId node;
  uint32_t instance = 0;       // which import of the client
  bool write_through = false;  // imported as write-through; all imports of a segment agree
};

struct Sharer : SharerId {
  struct {
    bool presented = false;    // a token
    bool could_write = false;  // with some token
  } ever;
  struct {
    bool awaited = false;                   // its client has not said that it stopped
    uint32_t notified = 0;                  // the last round that it was notified of
  } quiesce;                                // [rounds]
  uint64_t token = 0;                       // id; 0: none presented, or revoked
  uint32_t unacknowledged_revocations = 0;  // [rounds] revocations that it has not answered
  // Until it has heard that its token is revoked, it loads what it has cached, and is notified of
  // what is published like any other.
  bool loads() const { return token != 0 || unacknowledged_revocations != 0; }
  struct {
    uint32_t rights = 0;
    PageRange pages;
  } granted;  // what its token is for
  bool covers(uint64_t first, uint64_t count) const {
    const PageRange& pages = granted.pages;
    return first >= pages.first && first + count <= pages.first + uint64_t{pages.count};
  }
  // [rounds] Its own registration (a fence closes it), and how many bytes of the segment that
  // covers.
  struct {
    std::unique_ptr<fabric::Region> region;
    uint64_t end = 0;
  } session;
  // [rounds] Bytes. The highest break that it may have used since it acknowledged one last, and the
  // lowest that has come below that: what it has from there on is of before. kNoLow: none has.
  static constexpr uint64_t kNoLow = UINT64_MAX;
  struct {
    uint64_t peak = 0, low = kNoLow;
  } brk;
  SharedRegions regions;  // [rounds]
  SharerSubscriptions subscriptions;
  // [rounds] Pages that it stores to, or whose stores are not published: the map of pages in flux,
  // should it die. Client-inconsistent segments only.
  IntentMap intents;
  // Null: it does not map the segment's pages. The segment's lock `mu` guards what it points to.
  std::unique_ptr<LocalImporter> local;
};

// In the order in which they came. References are valid until a sharer is added or erased.
class SharerTable {
 public:
  // Null: there is none.
  Sharer* find(const ContextId& client, uint32_t instance);
  const Sharer* find(const ContextId& client, uint32_t instance) const;
  // One of the client's imports; null: it has none. The watch asks for each of its peers.
  const Sharer* any_of(const ContextId& client) const;
  // A new one, of which there is none yet. Null: there are kMaxSharers.
  Sharer* add(const SharerId& id);
  template <class Predicate>
  void erase_if(Predicate which) {
    if (std::erase_if(sharers_, which) != 0) index_again();
  }
  void clear();
  size_t size() const { return sharers_.size(); }
  auto begin() { return sharers_.begin(); }
  auto end() { return sharers_.end(); }
  auto begin() const { return sharers_.begin(); }
  auto end() const { return sharers_.end(); }

 private:
  using Key = std::pair<ContextId, uint32_t>;
  void index_again();

  std::vector<Sharer> sharers_;
  std::map<Key, size_t> index_;  // where each one is in sharers_
};

}  // namespace cmi::memory
