// What the home lets an import do: its token and key, which regions it is told about, and why an
// access was refused. Called by faults, in the SIGBUS handler with all signals blocked, and by
// calls.
#include "core/base/log.hpp"
#include "core/memory/importer/importer.hpp"

namespace cmi::memory {

namespace {
constexpr uint32_t kRegionsAhead = 8;

// What an access ends with whose refusal has left the import so. kNone: it may be tried again.
Exception cause_of(ImportState now) {
  if (now == ImportState::kUsable) return Exception::kNone;
  return now == ImportState::kGone ? Exception::kSinval : Exception::kToken;
}
}  // namespace

[[gnu::hot]] Exception Importer::usable(Import& imp, bool write, uint32_t page) {
  switch (imp.grant.state(std::memory_order_acquire)) {
    case ImportState::kNoToken:
    case ImportState::kRevoked:
      return Exception::kToken;
    case ImportState::kRemoved:
      return Exception::kToken;
    case ImportState::kGone:
      return Exception::kSinval;
    case ImportState::kUsable:
      // Whoever gives up a home condemns its link first, and ends its imports after.
      if (imp.link->condemned()) return Exception::kSinval;
      break;
  }
  if (imp.grant.is_outdated()) return Exception::kToken;
  const bool allowed =
      imp.grant.has(write ? fabric::kWrite : fabric::kRead) && imp.grant.allows(page);
  return allowed ? Exception::kNone : Exception::kAccess;
}

[[gnu::hot]] bool Importer::session_key(Import& imp, fabric::Session& session,
                                        fabric::RemoteKey* key, Deadline deadline) {
  // Fast path: the key was presented in this generation.
  if (imp.key.generation() == session.generation()) {
    *key = imp.key.key();
    return true;
  }
  Guard g(imp.token.mu);
  if (imp.key.generation() != session.generation()) {
    // Presenting closes the key of a token that was presented before on this connection; what uses
    // it would break the connection.
    if (imp.token.presented == session.generation() && !await_idle_key(imp, deadline)) return false;
    imp.token.presented = session.generation();
    imp.key.ask();
    const uint32_t seen = imp.changes.seen();
    const PresentTokenRequest m{imp.rseg.uid,          imp.instance,        imp.token.info.id,
                                imp.token.info.secret, parts_.self.node.hi, parts_.self.node.lo};
    const auto type =
        imp.write_through ? RequestType::kPresentTokenWriteThrough : RequestType::kPresentToken;
    auto answer = imp.link->call(static_cast<uint16_t>(type), Encoded(m), deadline);
    const auto reply = split_reply(answer ? Bytes(*answer) : Bytes());
    if (!reply) return false;
    const WireStatus status = reply->status;
    if (status == WireStatus::kOk || status == WireStatus::kBreakUnacknowledged) {
      imp.token.presented_id.store(imp.token.info.id, std::memory_order_release);
    }
    if (status == WireStatus::kBreakUnacknowledged) {
      imp.changes.wait(seen, kBreakNap);  // the notification is on its way
      return false;
    }
    if (status != WireStatus::kOk) {
      trace(kFacTok, kInfo, "the home refuses the token of segment {}: {}", imp.id,
            static_cast<int>(status));
      refused(imp, status, imp.token.info.id);
      return false;
    }
    PresentTokenReply granted;
    Break brk;
    if (!decode(reply->body, &granted) || !read_break(imp, granted.behind_key(), &brk)) {
      return false;
    }
    const fabric::RemoteKey named{granted.key, granted.base};
    const Bytes raw = granted.raw_key();
    // With the break at 0 there is nothing that a key could open.
    const Result<fabric::RemoteKey> usable =
        imp.extensible && raw.empty() ? named : session.fabric().map_key(named, raw);
    if (!usable) return false;
    imp.key.set(*usable);
    // The home decides; what the token claims is only what it claims.
    imp.grant.set_rights(granted.rights & imp.token.info.rights);
    imp.grant.narrow_pages(granted.first, granted.count);
    if (!imp.extensible) {
      imp.key.open(session.generation());
    } else if (!key_is_for(imp, brk, session.generation())) {
      return false;  // there is a newer one
    }
  }
  *key = imp.key.key();
  return imp.key.generation() == session.generation();
}

// Until no operation with the session key is under way; false when some still are at the deadline.
bool Importer::await_idle_key(Import& imp, Deadline deadline) {
  for (Backoff backoff; imp.key.in_use(); backoff.pause()) {
    if (deadline.passed()) return false;
    imp.link->advance();
  }
  return true;
}

// Whether the home tells us of invalidation rounds of these pages, which are kFetching: asks it to,
// if not.
[[gnu::hot]] bool Importer::acquire(Import& imp, uint32_t first, uint32_t n, Deadline deadline) {
  const uint32_t from = region_of(first);
  uint32_t to = region_of(first + n - 1);
  const auto all_shared = [&] {
    for (uint32_t r = from; r <= to; ++r) {
      if (!imp.regions.known.shared(r)) return false;
    }
    return true;
  };
  if (all_shared()) return true;
  Guard g(imp.regions.mu);
  if (all_shared()) return true;
  // Who reads in order wants the next ones soon.
  if (n >= Streams::kAheadFrom)
    to = std::min(to + kRegionsAhead, region_of(std::max(imp.grant.end_page(), first + n) - 1));
  const uint32_t epoch = imp.regions.epoch = imp.regions.epoch % kMaxEpoch + 1;
  for (uint32_t r = from; r <= to; ++r) {
    imp.regions.known.enter(r);  // not to be let go of before the answer is here
    imp.regions.known.claim(r, epoch);
  }
  const AcquireRequest m{imp.rseg.uid, imp.instance, from, to - from + 1, epoch};
  auto answer = imp.link->call(static_cast<uint16_t>(RequestType::kAcquire), Encoded(m), deadline);
  const auto reply = split_reply(answer ? Bytes(*answer) : Bytes());
  const bool good = reply && reply->status == WireStatus::kOk;
  for (uint32_t r = from; r <= to; ++r) {
    if (good) imp.regions.known.granted(r);
    imp.regions.known.leave(r);
  }
  return good;
}

// Whether the process that imported the segment has set a token since this one last looked: one
// token serves the whole node. Only asked when an access is about to fail for want of one.
bool Importer::adopt_token(const std::shared_ptr<Import>& imp, Deadline deadline) {
  const ImportState state = imp->grant.state();
  const uint32_t told = imp->grant.notified();
  if (state != ImportState::kNoToken && state != ImportState::kRevoked &&
      !imp->grant.is_outdated()) {
    return false;
  }
  Guard g(imp->token.adopt_mu);
  uint64_t version = 0;
  auto bytes = parts_.node.proxy_token(imp->id, &version);
  if (!bytes || bytes->size() < access::kTokenSize) return false;
  if (version != imp->token.adopted_version) {
    auto token = access::decode_token(bytes->data());
    if (!token) return false;
    const Status set = set_token(imp, *token, deadline);
    if (set == Status::kReconfig) return false;  // not yet
    imp->token.adopted_version = version;
    if (!ok(set)) return false;
  }
  // Not before: until here nobody accesses anything under the old one.
  imp->grant.took(told);
  return imp->grant.state() == ImportState::kUsable;
}

void Importer::token_changed(int32_t id) {
  for (auto& imp : all_imports()) {
    if (imp->id != id || imp->ours) continue;
    imp->grant.notify_of_token();
    if (imp->cache.ready()) invalidate(imp, {0, imp->pages});
  }
}

void Importer::took_token(Import& imp, uint64_t version) {
  Guard g(imp.token.adopt_mu);
  imp.token.adopted_version = version;
}

// What the home says about an access that failed. kNone: nothing is wrong (any more).
Exception Importer::explain(Import& imp, Deadline deadline, Break* brk) {
  const ImportState state = imp.grant.state();
  if (state == ImportState::kGone) return Exception::kSinval;
  if (state == ImportState::kNoToken || state == ImportState::kRevoked) return Exception::kToken;
  const uint64_t token = imp.token.presented_id.load(std::memory_order_acquire);
  const CauseRequest m{imp.rseg.uid, imp.instance};
  const Deadline soon{std::max(deadline.at, now() + 50 * kMilli)};
  auto answer = imp.link->call(static_cast<uint16_t>(RequestType::kCause), Encoded(m), soon);
  if (answer) {
    const auto reply = split_reply(*answer);
    const WireStatus status = reply ? reply->status : WireStatus::kOk;
    if (reply && brk != nullptr) (void)read_break(imp, reply->body, brk);
    switch (status) {
      case WireStatus::kOk:
        return state == ImportState::kRemoved ? Exception::kToken : Exception::kNone;
      case WireStatus::kRights:
        return Exception::kAccess;
      case WireStatus::kNotPresented:  // our presenting it has only not come through yet
        return Exception::kNone;
      default:
        return cause_of(refused(imp, status, token));
    }
  }
  return home_has_ended(imp) ? Exception::kSinval : Exception::kTransient;
}

ImportState Importer::refused(Import& imp, WireStatus status, uint64_t token) {
  ImportState to = ImportState::kRevoked;
  if (status == WireStatus::kGone || status == WireStatus::kEnding) to = ImportState::kGone;
  if (status == WireStatus::kRemoved) to = ImportState::kRemoved;
  // A home that lives and no longer has the segment has marked it for deletion.
  if (status == WireStatus::kGone || status == WireStatus::kRemoved) imp.events.marked.store(true);
  return end_import(imp.shared_from_this(), to, token) ? to : ImportState::kUsable;
}

}  // namespace cmi::memory
