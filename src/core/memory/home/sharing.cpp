#include "core/memory/home/sharing.hpp"

#include <algorithm>

#include "core/base/holder.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/local_grants.hpp"
#include "core/memory/home/quiescing.hpp"
#include "core/memory/node_bus/await.hpp"

namespace cmi::memory {

bool has_import(const Segment& s, const ContextId& client) {
  return s.sharers.any_of(client) != nullptr;
}

bool imports(HomeCore& home, const Segment& s, const ContextId& client) {
  Guard g(home.mu);
  return has_import(s, client);
}

bool imports_any(HomeCore& home, const ContextId& client) {
  bool any = false;
  home.segments.each([&](const Segment& s) { any = any || has_import(s, client); });
  return any;
}

bool may_import(const Segment& s, bool write_through) {
  if (!(write_through ? s.exported.write_through : s.exported.cached)) return false;
  // Since each was asked this, all agree.
  return s.sharers.size() == 0 || s.sharers.begin()->write_through == write_through;
}

Sharer* add_sharer(HomeCore& home, Segment& s, const fabric::ClientInfo& client, uint32_t instance,
                   bool write_through) {
  Sharer* const h = s.sharers.add({client.id, client.node, instance, write_through});
  if (h == nullptr) return nullptr;
  h->brk.peak = s.brk.bytes;
  home.parts.watch.look();
  return h;
}

void forget_client(HomeCore& home, const ContextId& client, Finished* done) {
  each_imported(home, client, [&](Segment& s) {
    Guard g(home.mu);
    forget_sharers(home, s, [&](const Sharer& h) { return h.client == client; });
    complete_quiesce(s, done);
  });
  Guard g(home.mu);
  home.rounds.forget(client, done);
}

// What a fenced client wrote one-sided and has not announced is at home already: everyone drops
// everything (rule 18).
void forget_content(HomeCore& home, Segment& s, const ContextId& client, uint32_t instance) {
  for (auto& h : s.sharers) {
    if (h.client != client || (instance != 0 && h.instance != instance) || !h.ever.could_write)
      continue;
    const RoundPtr dropped = home.rounds.publish(s, client, h.instance, {{0, s.pages()}});
    if (dropped == nullptr) continue;
    dropped->gone.push_back(holder_of(h.client, h.instance));
  }
}

std::vector<int32_t> imported_by(HomeCore& home, const ContextId& client, access::NaddrInfo* who) {
  std::vector<int32_t> ids;
  home.segments.each([&](const Segment& s) {
    if (!s.owned || s.removed) return;
    const Sharer* const h = s.sharers.any_of(client);
    if (h == nullptr) return;
    *who = {h->node, client};
    ids.push_back(s.id);
  });
  return ids;
}

void cut_off_silent(HomeCore& home, const RoundPtr& p, uint64_t uid) {
  struct Unacknowledged {  // an import
    ContextId client;
    uint32_t instance;
    NotificationType type;
  };
  std::vector<Unacknowledged> silent;
  {
    Guard g(home.mu);
    home.rounds.table().for_each([&](const Notification& n) {
      if (n.round == p) silent.push_back({n.client, n.instance, n.type});
    });
  }
  if (!mutated("mutate_revocation_unfenced")) {
    // What is in mid-payload ends here.
    for (auto& c : silent) home.parts.server.fence(c.client, false);
  }
  // What has arrived of it, and it may never announce.
  Finished done;
  if (const SegmentLock s(home, Uid{uid}, SegmentLock::kBoth); s) {
    // Its dirty intents stand for stores that nobody will publish.
    const RoundPtr known = begin_round();
    for (auto& [client, instance, type] : silent) {
      // A break takes nothing from it but what lies behind that: should it live, it publishes the
      // rest as always, and repairs what it was writing; should it not, forget()
      // takes it.
      if (type == NotificationType::kBreak) continue;
      // One that has a new token by now has dropped its pages, and has new intents for
      // what it stores to.
      const Sharer* h = s->sharers.find(client, instance);
      if (type == NotificationType::kRevoke && h != nullptr && h->token != 0) continue;
      cut_off_local(*s, client, instance);
      home.flux.lose_intents(*s, client, instance, known);
      Guard g(home.mu);
      forget_content(home, *s, client, instance);
    }
    Guard g(home.mu);
    home.rounds.settle(known, &done);
  }
  run(done);
}

bool await_end(HomeCore& home, const RoundPtr& p, Deadline deadline) {
  return mutated("mutate_end_before_verdict") || await(p->done, home.parts.server, deadline);
}

}  // namespace cmi::memory
