// Exporting, tokens and their revocation, and the end of a segment as its importers see it.
#include <algorithm>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/home.hpp"

namespace cmi::memory {

Result<access::RsegInfo> Home::export_segment(int32_t id, int32_t flags, int32_t attrib) {
  access::RsegInfo r;
  {
    Guard g(mu_);
    Segment* s = find(id);
    if (s == nullptr || s->removed) return Status::kInval;
    if (!s->owned) return Status::kPerm;
    if (!s->exported) {
      const auto n = std::count_if(segments_.begin(), segments_.end(),
                                   [](auto& e) { return e.second.exported && !e.second.removed; });
      if (n >= static_cast<ptrdiff_t>(kMaxExports)) {
        return because(Status::kNoMem, "as many segments are exported as can be");
      }
      s->exported = true;
      parts_.node.note_marks(id, node::kMarkExported, 0);
    }
    ((attrib & access::kWriteThrough) != 0 ? s->exported_write_through : s->exported_cached) = true;
    r.uid = s->uid;
    r.size = s->size;
  }
  (void)parts_.node.settle_marks(node::Node::kUsualWait);
  r.home_seg = id;
  r.flags = flags;
  r.attrib = attrib;
  r.home_node = parts_.node_id;
  r.home = parts_.self;
  r.machine = node::machine_id();
  r.listeners = parts_.server.listeners();
  return r;
}

// Null: there is no memory yet, or the client has no session any more.
Result<std::unique_ptr<fabric::Region>> Home::register_for(Segment& s,
                                                           const access::TokenInfo& token,
                                                           uint64_t key, const ContextId* client) {
  const uint64_t first = token.part.offset;
  const uint64_t whole = token.part.size != 0 ? first + token.part.size : s.size;
  const uint64_t end = std::min(whole, s.brk.bytes);
  if (end <= first) return std::unique_ptr<fabric::Region>();
  std::byte* const from = s.service.data() + first;
  return client != nullptr
             ? parts_.server.register_for(*client, from, end - first, token.rights, key)
             : parts_.server.register_at(kTokensListener, from, end - first, token.rights, key);
}

Result<access::TokenInfo> Home::new_token(int32_t id, bool any_node, NodeId node, uint32_t rights,
                                          const access::TokenPart* part) {
  Guard g(mu_);
  Segment* s = find(id);
  if (s == nullptr || s->removed) return Status::kInval;
  if (!s->owned) return Status::kPerm;
  size_t all = 0;
  for (auto& [other, seg] : segments_) all += seg.tokens.size();
  if (all >= kMaxTokens || s->tokens.size() >= kMaxTokensPerSegment) {
    return because(Status::kNoMem, "as many tokens are in force as can be");
  }
  if (!any_node) {
    for (auto& [tid, t] : s->tokens) {
      if (!t.info.any_node && t.info.node == node) {
        return because(Status::kBound, "the node has a token already");
      }
    }
  }
  access::TokenInfo info;
  info.uid = s->uid;
  info.id = random_u64();
  info.secret = random_u64();
  info.rights = rights;
  info.any_node = any_node;
  info.node = any_node ? NodeId{} : node;
  info.home = parts_.self;
  if (part != nullptr) info.part = *part;
  // The token is the key of a registration with just its rights.
  const uint64_t wanted = random_u64();
  auto region = register_for(*s, info, wanted);
  if (!region) return region.status();
  auto key = *region != nullptr ? (*region)->key() : fabric::RemoteKey{wanted, 0};
  key.base -= info.part.offset;  // of the segment's first byte, reachable or not
  info.keys.push_back({parts_.server.fabric(kTokensListener).traits().provider, key});
  Token& t = s->tokens[info.id];
  t.info = info;
  t.region = region.take();
  s->had_token = true;
  return info;
}

void Home::cut_off_silent(const std::shared_ptr<InvalidationRound>& p, uint64_t uid) {
  struct Unacknowledged {  // an import
    ContextId client;
    uint32_t instance;
    NotificationType type;
  };
  std::vector<Unacknowledged> silent;
  {
    Guard g(mu_);
    for (auto& [number, n] : notifications_) {
      if (n.round != p) continue;
      silent.push_back({n.client, n.instance, n.type});
    }
  }
  if (!mutated("mutate_revocation_unfenced")) {
    for (auto& c : silent)
      parts_.server.fence(c.client, false);  // what is in mid-payload ends here
  }
  // What has arrived of it, and it may never announce.
  Finished done;
  {
    Guard g(mu_);
    if (Segment* s = find_uid(uid); s != nullptr) {
      // Its marks stand for stores that nobody will publish.
      auto known = std::make_shared<InvalidationRound>();
      known->waiting = 1;
      known->done.begin();
      for (auto& [client, instance, type] : silent) {
        // A break takes nothing from it but what lies behind that: should it live, it publishes the
        // rest as always, and repairs what it was writing; should it not, forget() is told.
        if (type == NotificationType::kBreak) continue;
        // One that has a new token by now has dropped its pages, and marks again what it stores to.
        const Sharer* h = find_sharer(*s, client, instance);
        if (type == NotificationType::kRevoke && h != nullptr && h->token != 0) continue;
        lose_intents(*s, client, instance, known);
        forget_content(*s, client, instance);
      }
      settle(known, &done);
    }
  }
  run(done);
}

Status Home::delete_token(const access::TokenInfo& token, Deadline deadline) {
  if (token.home != parts_.self) return because(Status::kPerm, "another context made the token");
  auto p = std::make_shared<InvalidationRound>();
  p->waiting = 1;
  p->done.begin();
  Finished done;
  {
    Guard g(mu_);
    Segment* s = find_uid(token.uid);
    if (s == nullptr) return because(Status::kInval, "the token is not in force");
    auto t = s->tokens.find(token.id);
    if (t == s->tokens.end() || t->second.revoked || t->second.info.secret != token.secret) {
      return because(Status::kInval, "the token is not in force");
    }
    // First: no new use of it, and nothing that arrives from now on is applied.
    t->second.revoked = true;
    const bool was_shared = s->shared();
    for (auto& h : s->sharers) {
      if (h.token != token.id) continue;
      h.token = 0;
      h.rights = 0;
      ++h.unacknowledged_revocations;
      const RevokeNotification m{s->uid, h.instance, token.id};
      notify(p, *s, h, NotificationType::kRevoke, Encoded(m));
    }
    recount(*s, was_shared);
    settle(p, &done);
  }
  run(done);
  fault_point("revoke_told");
  // Then: every importer that used it has stopped, so that closing its key breaks nobody's link.
  if (!wait(*p, deadline)) {
    trace(kFacTok, kWarn, "tok_del: an importer did not answer; it is cut off");
    cut_off_silent(p, token.uid);
  }
  fault_point("revoke_before_close");
  // Last: the registrations, its own and those made from it.
  Guard g(mu_);
  Segment* s = find_uid(token.uid);
  if (s == nullptr || mutated("mutate_revocation_unfenced")) return Status::kOk;
  for (auto& h : s->sharers) {
    if (h.token == 0 && !mutated("mutate_session_key_kept")) h.session.reset();
  }
  s->tokens.erase(token.id);
  return Status::kOk;
}

void Home::removed(int32_t id, Deadline deadline) {
  auto p = std::make_shared<InvalidationRound>();
  p->waiting = 1;
  p->done.begin();
  Finished done;
  uint64_t uid = 0;
  const auto info = parts_.node.find(id);  // may wait
  {
    Guard g(mu_);
    Segment* s = find(id);
    if (s == nullptr || !s->owned || s->removed) return;
    const bool was_shared = s->shared();
    s->removed = true;
    uid = s->uid;
    complete_quiesce(*s, &done);
    const bool gone = !info || info->attachments == 0;
    recount(*s, was_shared);
    // Who has no token, and knows it, uses nothing, so its answer is not waited for. It is told all
    // the same: no event may name the segment any more.
    auto unawaited = std::make_shared<InvalidationRound>();
    unawaited->waiting = 1;
    unawaited->done.begin();
    for (auto& h : s->sharers) {
      const bool awaited = h.loads();
      if (!awaited && ending_) continue;  // the goodbye tells it
      h.token = 0;
      const int how = (gone ? kRemovedGone : 0) | (ending_ ? kRemovedEnding : 0);
      const RemovedNotification m{s->uid, h.instance, static_cast<uint8_t>(how)};
      notify(awaited ? p : unawaited, *s, h, NotificationType::kRemoved, Encoded(m));
    }
    settle(unawaited, &done);
    settle(p, &done);
  }
  run(done);
  const bool told = wait(*p, deadline);
  if (!told) {
    trace(kFacSeg, kWarn, "segment {} is removed: an importer did not answer; it is cut off", id);
    cut_off_silent(p, uid);
  }
  const bool known = parts_.node.find(id).status() != Status::kInval;
  {
    Guard g(mu_);
    Segment* s = find(id);
    if (s == nullptr) return;
    for (auto& h : s->sharers) h.session.reset();
    s->tokens.clear();
    // While anyone of this node has it attached, importers are told TOKEN, not SINVAL: it stays
    // known.
    if (s->views.empty() && !known) {
      bury(*s);
      segments_.erase(id);
    }
  }
  unbury();
}

}  // namespace cmi::memory
