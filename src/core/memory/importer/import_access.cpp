// The session key, regions, and why an access was refused. Faults call it, in the SIGBUS handler
// with all signals blocked, and calls.
#include "core/memory/importer/import_access.hpp"

#include "core/base/cause.hpp"
#include "core/base/log.hpp"
#include "core/memory/importer/import_break.hpp"
#include "core/memory/importer/import_end.hpp"

namespace cmi::memory {

namespace {
constexpr uint32_t kRegionsAhead = 8;

// How a refused access ends, by the state that the refusal has left the import in. kNone: the
// access may be tried again.
Exception cause_of(ImportState now) {
  if (now == ImportState::kUsable) return Exception::kNone;
  return now == ImportState::kGone ? Exception::kSinval : Exception::kToken;
}

// The home has taken the token. False: malformed, or there is a newer break.
bool take_key(Import& imp, fabric::Session& session, Bytes body) CMI_REQUIRES(imp.token.mu) {
  PresentTokenReply granted;
  Break brk;
  if (!decode(body, &granted) || !read_break(imp, granted.behind_key(), &brk)) return false;
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
  if (imp.extensible) return key_is_for(imp, brk, session.generation());
  imp.key.open(session.generation());
  return true;
}

bool present_token(ImporterCore& core, Import& imp, fabric::Session& session, Deadline deadline)
    CMI_REQUIRES(imp.token.mu) {
  // Presenting closes the key of a token that was presented before on this connection; what uses
  // it would break the connection.
  if (imp.token.presented_in(session.generation()) && !await_idle_key(imp, deadline)) return false;
  imp.token.present_in(session.generation());
  imp.key.ask();
  const uint32_t seen = imp.changes.seen();
  const NodeId& node = core.parts.self.node;
  const access::TokenInfo token = imp.token.info;
  const PresentTokenRequest m{imp.rseg.uid, imp.instance, token.id, token.secret, node.hi, node.lo};
  const auto type =
      imp.write_through ? RequestType::kPresentTokenWriteThrough : RequestType::kPresentToken;
  auto answer = imp.link->call(static_cast<uint16_t>(type), Encoded(m), deadline);
  const auto reply = split_reply(answer ? Bytes(*answer) : Bytes());
  if (!reply) return false;
  const WireStatus status = reply->status;
  if (status == WireStatus::kOk || status == WireStatus::kBreakUnacknowledged) {
    imp.token.set_taken(token.id);
  }
  if (status == WireStatus::kBreakUnacknowledged) {
    imp.changes.wait(seen, kBreakNap);  // the notification is on its way
    return false;
  }
  if (status != WireStatus::kOk) {
    trace(kFacTok, kInfo, "the home refuses the token of segment {}: {}", imp.id,
          static_cast<int>(status));
    refused(core, imp, status, token.id);
    return false;
  }
  return take_key(imp, session, reply->body);
}

}  // namespace

[[gnu::hot]] Exception usable(Import& imp, bool write, uint32_t page) {
  switch (imp.grant.state()) {
    case ImportState::kNoToken:
    case ImportState::kRevoked:
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

bool is_at_hand(const View& view, const std::byte* addr) {
  Import& imp = *view.import;
  if (imp.views.local.local()) return true;
  if (imp.write_through || !imp.cache.ready()) return false;
  Page& page = imp.page(page_of(view, addr));
  page.lock();
  const bool mapped = may_be_mapped(page.state);
  page.unlock();
  return mapped;
}

[[gnu::hot]] bool session_key(ImporterCore& core, Import& imp, fabric::Session& session,
                              fabric::RemoteKey* key, Deadline deadline) {
  // Fast path: the key was presented in this generation.
  if (imp.key.generation() == session.generation()) {
    *key = imp.key.key();
    return true;
  }
  Guard g(imp.token.mu);
  if (imp.key.generation() != session.generation() &&
      !present_token(core, imp, session, deadline)) {
    return false;
  }
  *key = imp.key.key();
  return imp.key.generation() == session.generation();
}

bool await_idle_key(Import& imp, Deadline deadline) {
  for (Backoff backoff; imp.key.in_use(); backoff.pause()) {
    if (deadline.passed()) return false;
    imp.link->advance();
  }
  return true;
}

[[gnu::hot]] bool acquire(Import& imp, uint32_t first, uint32_t n, Deadline deadline) {
  const uint32_t from = region_of(first);
  uint32_t to = region_of(first + n - 1);
  if (imp.regions.all_shared(from, to)) return true;
  Guard g(imp.regions.mu);
  if (imp.regions.all_shared(from, to)) return true;
  // A thread that reads in order wants the next ones soon.
  if (n >= Streams::kAheadFrom)
    to = std::min(to + kRegionsAhead, region_of(std::max(imp.grant.end_page(), first + n) - 1));
  const uint32_t epoch = imp.regions.begin(from, to);
  const AcquireRequest m{imp.rseg.uid, imp.instance, from, to - from + 1, epoch};
  auto answer = imp.link->call(static_cast<uint16_t>(RequestType::kAcquire), Encoded(m), deadline);
  const auto reply = split_reply(answer ? Bytes(*answer) : Bytes());
  const bool good = reply && reply->status == WireStatus::kOk;
  imp.regions.end(from, to, good);
  return good;
}

Result<bool> holder_gone(Import& imp, uint64_t holder, Deadline deadline) {
  const AskHolderRequest m{imp.rseg.uid, imp.instance, holder};
  auto answer =
      imp.link->call(static_cast<uint16_t>(RequestType::kAskHolder), Encoded(m), deadline);
  const auto reply = split_reply(answer ? Bytes(*answer) : Bytes());
  if (!reply) return because(Status::kReconfig, "the home does not answer");
  if (reply->status == WireStatus::kMalformed) {
    return because(Status::kNotSupp, "the home's library does not know the question");
  }
  AskHolderReply said;
  if (reply->status != WireStatus::kOk || !decode(reply->body, &said)) {
    return because(Status::kReconfig, "the home does not know the import");
  }
  return said.gone != 0;
}

Exception explain(ImporterCore& core, Import& imp, Deadline deadline, Break* brk) {
  const ImportState state = imp.grant.state();
  if (state == ImportState::kGone) return Exception::kSinval;
  if (state == ImportState::kNoToken || state == ImportState::kRevoked) return Exception::kToken;
  const uint64_t token = imp.token.taken();
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
        return cause_of(refused(core, imp, status, token));
    }
  }
  return home_has_ended(core, imp) ? Exception::kSinval : Exception::kTransient;
}

ImportState refused(ImporterCore& core, Import& imp, WireStatus status, uint64_t token) {
  ImportState to = ImportState::kRevoked;
  if (status == WireStatus::kGone || status == WireStatus::kEnding) to = ImportState::kGone;
  if (status == WireStatus::kRemoved) to = ImportState::kRemoved;
  // A home that lives and no longer has the segment has marked it for deletion.
  if (status == WireStatus::kGone || status == WireStatus::kRemoved) imp.events.marked.store(true);
  return end_import(core, imp.shared_from_this(), to, token) ? to : ImportState::kUsable;
}

}  // namespace cmi::memory
