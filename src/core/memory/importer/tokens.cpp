// A token comes into force.
#include "core/memory/importer/tokens.hpp"

#include <optional>
#include <utility>

#include "core/base/cause.hpp"
#include "core/base/log.hpp"
#include "core/memory/importer/import_access.hpp"
#include "core/memory/importer/page_drops.hpp"
#include "core/memory/importer/publishing.hpp"

namespace cmi::memory {

Status Tokens::check(const Import& imp, const access::TokenInfo& token) const {
  if (token.uid != imp.rseg.uid) {
    return because(Status::kInval, "the token is of another segment");
  }
  if (!token.any_node && token.node != core_.parts.self.node) {
    return because(Status::kPerm, "the token is for another node");
  }
  if (token.part.size > imp.rseg.size || token.part.offset > imp.rseg.size - token.part.size) {
    return because(Status::kInval, "the token is of a part that the segment does not have");
  }
  // Without READ there is no twin, hence no caching.
  if (!imp.write_through && (token.rights & fabric::kWrite) != 0 &&
      (token.rights & fabric::kRead) == 0) {
    return because(Status::kInval, "a token with WRITE and without READ");
  }
  const ImportState before = imp.grant.state();
  if (before == ImportState::kGone || before == ImportState::kRemoved) {
    return because(Status::kInval, "the segment is gone or was removed");
  }
  return Status::kOk;
}

Status Tokens::set(const std::shared_ptr<Import>& import, const access::TokenInfo& token,
                   Deadline deadline) {
  Import& imp = *import;
  if (const Status checked = check(imp, token); !ok(checked)) return checked;
  LossMark ignored;
  if (imp.grant.state() == ImportState::kUsable) {
    // Stores made under the old token travel under it.
    if (Status s = Publishing(core_).barrier(ignored, Patience{deadline}); !ok(s)) {
      trace(kFacTok, kWarn, "CMI_SEG_TOKEN: stores under the old token were lost");
    }
  }
  std::optional<Grant::Sweep> sweep;
  bool first = false;  // nothing was ever accessed, so nothing is cached
  for (Backoff backoff;; backoff.pause()) {
    Guard g(imp.token.mu);
    first = imp.grant.state() == ImportState::kNoToken;
    if (auto begun = imp.grant.begin(token, imp.pages, imp.key)) {
      imp.token.info = token;
      sweep.emplace(std::move(*begun));
      break;
    }
    if (deadline.passed()) return because(Status::kReconfig, "the former token still ends");
  }
  // What is cached under the old token may be more than the new one allows. Nothing is lost by it.
  if (imp.views.local.local()) imp.views.local.close();
  if (imp.cache.ready() && !first) invalidate(core_, import, {0, imp.pages});
  sweep.reset();
  // Presented now, so that a revoked token is known at the first access, cached pages or not; an
  // unreachable home is that access's business.
  if (auto session = imp.link->session(deadline); session != nullptr) {
    fabric::RemoteKey key;
    session_key(core_, imp, *session, &key, deadline);
  }
  return Status::kOk;
}

bool Tokens::adopt(const std::shared_ptr<Import>& imp, Deadline deadline) {
  const ImportState state = imp->grant.state();
  const uint32_t notified = imp->grant.notified();
  if (state != ImportState::kNoToken && state != ImportState::kRevoked &&
      !imp->grant.is_outdated()) {
    return false;
  }
  Guard g(imp->token.adopt_mu);
  uint64_t version = 0;
  auto bytes = core_.parts.node.proxies().token(imp->id, &version);
  if (!bytes || bytes->size() < access::kTokenSize) return false;
  if (!imp->token.has_adopted(version)) {
    auto token = access::decode_token(bytes->data());
    if (!token) return false;
    const Status status = set(imp, *token, deadline);
    if (status == Status::kReconfig) return false;  // not yet
    imp->token.set_adopted(version);
    if (!ok(status)) return false;
  }
  // Last: until here accesses wait, so that none is made under the old token.
  imp->grant.took(notified);
  return imp->grant.state() == ImportState::kUsable;
}

void Tokens::changed(int32_t id) {
  for (auto& imp : core_.imports.all()) {
    if (imp->id != id || imp->ours) continue;
    imp->grant.notify_of_token();
    if (imp->views.local.local()) imp->views.local.close();
    if (imp->cache.ready()) invalidate(core_, imp, {0, imp->pages});
  }
}

void Tokens::took(Import& imp, uint64_t version) {
  Guard g(imp.token.adopt_mu);
  imp.token.set_adopted(version);
}

}  // namespace cmi::memory
