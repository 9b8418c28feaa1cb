#include "core/memory/home/exports.hpp"

#include <algorithm>

#include "core/base/cause.hpp"
#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/local_grants.hpp"
#include "core/memory/home/quiescing.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/home/session_keys.hpp"
#include "core/memory/home/sharing.hpp"
#include "core/memory/node_bus/await.hpp"

namespace cmi::memory {

namespace {
constexpr const char* kStillReads =
    "an importer may still read what it has cached: it has neither answered nor been declared dead";
}  // namespace

uint32_t Exports::count() {
  Guard g(home_.mu);
  return home_.segments.exports();
}

Result<access::RsegInfo> Exports::export_segment(int32_t id, int32_t flags, int32_t attrib) {
  access::RsegInfo r;
  {
    const SegmentLock s(home_, id, SegmentLock::kBoth);
    if (!s || s->removed) return Status::kInval;
    if (!s->owned) return Status::kPerm;
    Guard g(home_.mu);
    if (!s->exported.any) {
      if (home_.segments.exports() >= kMaxExports) {
        return because(Status::kNoMem, "as many segments are exported as can be");
      }
      s->exported.any = true;
      home_.parts.node.marks().note(id, node::kMarkExported, 0);
    }
    ((attrib & access::kWriteThrough) != 0 ? s->exported.write_through : s->exported.cached) = true;
    r.uid = s->uid;
    r.size = s->size;
  }
  (void)home_.parts.node.marks().settle(node::kUsualWait);
  r.home_seg = id;
  r.flags = flags;
  r.attrib = attrib;
  r.home_node = home_.parts.node_id;
  r.home = home_.parts.self;
  r.machine = node::machine_id();
  r.boot = node::boot_id();
  r.listeners = home_.parts.server.listeners();
  return r;
}

bool Exports::too_many_tokens(const Segment& s) {
  Guard g(home_.mu);
  return home_.segments.tokens() >= kMaxTokens || s.tokens.full();
}

Result<access::TokenInfo> Exports::new_token(int32_t id, bool any_node, NodeId node,
                                             uint32_t rights, const access::TokenPart* part) {
  const SegmentLock s(home_, id, SegmentLock::kMemory);
  if (!s || s->removed) return Status::kInval;
  if (!s->owned) return Status::kPerm;
  if (too_many_tokens(*s)) return because(Status::kNoMem, "as many tokens are in force as can be");
  if (!any_node && s->tokens.has_for(node)) {
    return because(Status::kBound, "the node has a token already");
  }
  access::TokenInfo info;
  info.uid = s->uid;
  info.id = random_u64();
  info.secret = random_u64();
  info.rights = rights;
  info.any_node = any_node;
  info.node = any_node ? NodeId{} : node;
  info.home = home_.parts.self;
  if (part != nullptr) info.part = *part;
  // The token is the key of a registration with just its rights.
  const uint64_t wanted = random_u64();
  auto region = register_for(home_, *s, info, wanted);
  if (!region) return region.status();
  auto key = *region != nullptr ? (*region)->key() : fabric::RemoteKey{wanted, 0};
  key.base -= info.part.offset;  // of the segment's first byte, reachable or not
  info.keys.push_back({home_.parts.server.fabric(kTokensListener).traits().provider, key});
  Guard g(home_.mu);
  s->tokens.add({info, region.take(), false});
  return info;
}

// First: no new use of the token, and nothing that arrives from now on is applied.
Status Exports::revoke(const access::TokenInfo& token, const RoundPtr& p) {
  Finished done;
  {
    const SegmentLock s(home_, Uid{token.uid}, SegmentLock::kMemory);
    Guard g(home_.mu);
    Token* const t = s ? s->tokens.in_force(token.id, token.secret) : nullptr;
    if (t == nullptr) return because(Status::kInval, "the token is not in force");
    t->revoked = true;
    const bool was_shared = s->shared();
    for (auto& h : s->sharers) {
      if (h.token != token.id) continue;
      h.token = 0;
      h.granted.rights = 0;
      ++h.unacknowledged_revocations;
      const RevokeNotification m{s->uid, h.instance, token.id};
      home_.rounds.notify(p, *s, h, NotificationType::kRevoke, Encoded(m));
    }
    home_.shared_segments.changed(was_shared, s->shared());
    home_.rounds.settle(p, &done);
  }
  run(done);
  return Status::kOk;
}

// What an earlier call has left; kOk where it has left nothing.
Status Exports::await_rest(uint64_t what, const EndWait& wait) {
  const RoundPtr p = unfinished_.find(what);
  if (p == nullptr || await_end(home_, p, Deadline::in(wait.answer))) return Status::kOk;
  return because(Status::kReconfig, kStillReads);
}

Status Exports::delete_token(const access::TokenInfo& token, const EndWait& wait) {
  if (token.home != home_.parts.self) {
    return because(Status::kPerm, "another context made the token");
  }
  const RoundPtr p = begin_round();
  if (Status st = revoke(token, p); !ok(st)) {
    for (const uint64_t what : {token.id, token.uid}) {
      if (Status rest = await_rest(what, wait); !ok(rest)) return rest;
    }
    return unfinished_.find(token.id) != nullptr ? Status::kOk : st;
  }
  fault_point("revoke_notified");
  const Deadline last = Deadline::in(wait.answer);
  // Then: every importer that used it has stopped, so that closing its key breaks nobody's link.
  if (!await(p->done, home_.parts.server, Deadline::in(wait.fence))) {
    trace(kFacTok, kWarn, "tok_del: an importer did not answer; it is cut off");
    cut_off_silent(home_, p, token.uid);
  }
  fault_point("revoke_before_close");
  close_keys(token);
  if (await_end(home_, p, last)) return Status::kOk;
  unfinished_.add(token.id, p);
  return because(Status::kReconfig, kStillReads);
}

// Last: the registrations, its own and those made from it.
void Exports::close_keys(const access::TokenInfo& token) {
  const SegmentLock s(home_, Uid{token.uid}, SegmentLock::kMemory);
  if (!s || mutated("mutate_revocation_unfenced")) return;
  Guard g(home_.mu);
  for (auto& h : s->sharers) {
    if (h.token == 0 && !mutated("mutate_session_key_kept")) h.session.region.reset();
  }
  s->tokens.erase(token.id);
}

// False: there is nobody to notify, for it is not ours or was removed before.
bool Exports::notify_removed(int32_t id, bool gone, uint64_t* uid, const RoundPtr& p) {
  Finished done;
  {
    const SegmentLock s(home_, id, SegmentLock::kBoth);
    if (!s || !s->owned || s->removed) return false;
    Guard g(home_.mu);
    const bool was_shared = s->shared();
    s->removed = true;
    *uid = s->uid;
    complete_quiesce(*s, &done);
    home_.shared_segments.changed(was_shared, s->shared());
    // A sharer that has no token, and knows it, uses nothing, so its answer is not waited for. It
    // is notified all the same: no event may name the segment any more.
    const RoundPtr unawaited = begin_round();
    for (auto& h : s->sharers) {
      const bool awaited = h.loads();
      if (!awaited && home_.ending) continue;  // the goodbye says so
      h.token = 0;
      const int how = (gone ? kRemovedGone : 0) | (home_.ending ? kRemovedEnding : 0);
      const RemovedNotification m{s->uid, h.instance, static_cast<uint8_t>(how)};
      const RoundPtr& round = awaited ? p : unawaited;
      home_.rounds.notify(round, *s, h, NotificationType::kRemoved, Encoded(m));
    }
    home_.rounds.settle(unawaited, &done);
    home_.rounds.settle(p, &done);
  }
  run(done);
  return true;
}

Status Exports::removed(int32_t id, const EndWait& wait) {
  const RoundPtr p = begin_round();
  uint64_t uid = 0;
  const auto info = home_.parts.node.segments().find(id);  // may wait
  if (!notify_removed(id, !info || info->attachments == 0, &uid, p)) {
    return await_rest(static_cast<uint32_t>(id), wait);
  }
  const Deadline last = Deadline::in(wait.answer);
  unfinished_.add(static_cast<uint32_t>(id), p);
  unfinished_.add(uid, p);  // of its tokens
  if (!await(p->done, home_.parts.server, Deadline::in(wait.fence))) {
    trace(kFacSeg, kWarn, "segment {} is removed: an importer did not answer; it is cut off", id);
    cut_off_silent(home_, p, uid);
  }
  end_segment(id);
  if (await_end(home_, p, last)) return Status::kOk;
  return because(Status::kReconfig, kStillReads);
}

void Exports::end_segment(int32_t id) {
  const bool known = home_.parts.node.segments().find(id).status() != Status::kInval;
  Fd passed;
  {
    const SegmentLock s(home_, id, SegmentLock::kBoth);
    if (!s) return;
    // While anyone of this node has it attached, importers get TOKEN, not SINVAL: it stays known.
    const bool gone = s->views.empty() && !known;
    if (gone) quarantine_memory(home_, *s);
    if (gone) passed = take_passed_file(home_, *s);
    Guard g(home_.mu);
    for (auto& h : s->sharers) h.session.region.reset();
    s->tokens.clear();
    if (gone) home_.segments.erase(id);
  }
  empty_passed_file(home_, id, std::move(passed), 0);
  trim_quarantine(home_);
}

}  // namespace cmi::memory
