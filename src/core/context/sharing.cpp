// Handles and tokens as clients hold them: exporting, importing, granting, revoking.
#include <algorithm>
#include <cstring>

#include "core/base/cause.hpp"
#include "core/base/lock.hpp"
#include "core/base/log.hpp"
#include "core/context/context.hpp"
#include "core/emulate/emulate.hpp"

namespace cmi::context {

// Memory for an object that the client will hold, from its allocator, remembered until it is
// deleted.
Result<void*> Context::issue(size_t size, bool token, int32_t segment) {
  void* p = allocator_.get(size);
  if (p == nullptr) return Status::kNoMem;
  std::memset(p, 0, size);
  Guard g(mu_);
  issued_.push_back({p, token, segment});
  return p;
}

// Finds the library's copy, the very object if it is one of ours, else one of the same content, and
// frees it.
bool Context::revoke_issued(const void* object, Bytes content, bool token) {
  void* found = nullptr;
  {
    Guard g(mu_);
    auto it = std::find_if(issued_.begin(), issued_.end(),
                           [&](const Issued& i) { return i.token == token && i.object == object; });
    if (it == issued_.end()) {
      it = std::find_if(issued_.begin(), issued_.end(), [&](const Issued& i) {
        return i.token == token && std::memcmp(i.object, content.data(), content.size()) == 0;
      });
    }
    if (it == issued_.end()) return false;
    found = it->object;
    issued_.erase(it);
  }
  allocator_.put(found);
  return true;
}

Result<cmi_rseg*> Context::seg_exp(int32_t seg, int32_t attrib) {
  if ((attrib & ~CMI_SEG_WRITE_THROUGH) != 0)
    return because(Status::kNotSupp, "an unknown attribute");
  const auto info = known(seg);
  if (!info) return info.status();
  if (info->removed || info->kind != node::SegmentKind::kHome) {
    return because(Status::kInval, "no such segment at home, or it was removed");
  }
  if (!engine_->home().owns(seg)) return because(Status::kPerm, "another process made it");
  if ((attrib & CMI_SEG_WRITE_THROUGH) != 0 && !emulate::supported()) {
    return because(Status::kNotSupp, "this build or this CPU cannot use write-through segments");
  }
  auto object = issue(access::kRsegSize, false, seg);
  if (!object) return object.status();
  auto rseg = engine_->home().exports().export_segment(seg, info->flags, attrib);
  Status status = rseg.status();
  auto* bytes = static_cast<std::byte*>(*object);
  if (ok(status)) status = access::encode_rseg(*rseg, {bytes, access::kRsegSize}, version());
  if (!ok(status)) {
    revoke_issued(*object, {bytes, access::kRsegSize}, false);
    return status;
  }
  return static_cast<cmi_rseg*>(*object);
}

Status Context::rseg_del(const cmi_rseg* rseg) {
  if (rseg == nullptr) return because(Status::kInval, "the handle is null");
  auto info = access::decode_rseg(rseg);
  if (!info) return because(Status::kInval, "the handle is malformed");
  SignalsBlocked quiet;
  if (info->home != id_) return because(Status::kPerm, "another context made the handle");
  std::byte content[access::kRsegSize];
  if (Status s = access::encode_rseg(*info, content, version()); !ok(s)) return s;
  return revoke_issued(rseg, content, false)
             ? Status::kOk
             : because(Status::kInval, "the handle was deleted already");
}

// The client's own timeout, where it has set one.
memory::JoinTime Context::join_time() const {
  const bool set = engine_->importer().reconf_timeout().is_set();
  const Nanos answer = set ? std::max(call_timeout(), kFirstContact) : environment_.join_timeout;
  return {Deadline::in(call_timeout()), Deadline::in(answer)};
}

Result<int32_t> Context::seg_imp(const cmi_rseg* rseg) {
  if (rseg == nullptr) return because(Status::kInval, "the handle is null");
  auto info = access::decode_rseg(rseg);
  if (!info) return because(Status::kInval, "the handle is malformed");
  SignalsBlocked quiet;
  // Copied field by field above; the registry keeps the checked bytes for the other processes.
  std::byte blob[access::kRsegSize] = {};
  if (Status s = access::encode_rseg(*info, blob); !ok(s)) return s;
  auto id = node_->create_proxy(info->size, info->flags, blob, access::extensible(info->flags));
  if (!id) return id.status();
  auto import = engine_->importer().joining().import(*info, *id, true, join_time());
  if (!import) {
    (void)node_->remove(*id);
    return import.status();
  }
  Guard g(mu_);
  Imported& entry = imported_[*id];
  entry.import = import.take();
  entry.ours = true;
  start_cache(entry.import);
  return *id;
}

Status Context::set_token(int32_t seg, const cmi_token* token) {
  if (token == nullptr) return because(Status::kInval, "the token is null");
  auto info = access::decode_token(token);
  if (!info) return because(Status::kInval, "the token is malformed");
  SignalsBlocked quiet;
  const auto segment = known(seg);
  if (!segment) return segment.status();
  if (segment->removed || segment->kind != node::SegmentKind::kProxy) {
    return because(Status::kInval, "no such import on this node, or it was removed");
  }
  std::shared_ptr<memory::Import> import;
  {
    Guard g(mu_);
    auto it = imported_.find(seg);
    if (it == imported_.end() || !it->second.ours) {
      return because(Status::kPerm, "another process imported it");
    }
    import = it->second.import;
  }
  events_->recovered(seg);  // first, so that what the new token fails in is told
  if (Status s = engine_->importer().tokens().set(import, *info, Deadline::in(call_timeout()));
      !ok(s)) {
    return s;
  }
  std::byte bytes[access::kTokenSize] = {};
  if (ok(access::encode_token(*info, bytes))) (void)node_->store_proxy_token(seg, bytes);
  uint64_t version = 0;
  if (node_->proxy_token(seg, &version)) engine_->importer().tokens().took(*import, version);
  int views = 0;
  {
    Guard g(mu_);
    if (auto it = imported_.find(seg); it != imported_.end()) views = it->second.views;
  }
  // Who attaches from now on finds the new one.
  auto all = node_->find(seg);
  if (all && all->attachments > static_cast<uint32_t>(views) &&
      !engine_->home().notify_token(seg, Deadline::in(call_timeout()))) {
    trace(kFacTok, kWarn, "CMI_SEG_TOKEN: a process of this node does not answer");
  }
  // The token is in force: where the registry is locked for long, the dirty intent comes later.
  node_->note_marks(seg, node::kMarkTokenSet, 0);
  (void)node_->settle_marks(node::Node::kUsualWait);
  return Status::kOk;
}

Result<cmi_token*> Context::tok_new(int32_t seg, const cmi_naddr* naddr, uint32_t rights) {
  return make_token(seg, nullptr, naddr, rights);
}

Result<cmi_token*> Context::tok_newva(int32_t seg, const void* va, size_t size,
                                      const cmi_naddr* naddr, uint32_t rights) {
  if (version() < 11) return Status::kNotSupp;
  access::TokenPart part;
  {
    SignalsBlocked quiet;
    const auto info = known(seg);
    if (!info) return info.status();
    if (info->kind != node::SegmentKind::kHome) return Status::kInval;
    if (!engine_->home().owns(seg)) return Status::kPerm;
    size_t offset = 0;
    bool read_only = false;
    if (size == 0 || size % kPageSize != 0 ||
        engine_->home().views().segment_at(va, &offset, &read_only) != seg ||
        offset % kPageSize != 0 || size > info->size - offset) {
      return Status::kInval;
    }
    part = {offset, size};
  }
  return make_token(seg, &part, naddr, rights);
}

Result<cmi_token*> Context::make_token(int32_t seg, const access::TokenPart* part,
                                       const cmi_naddr* naddr, uint32_t rights) {
  constexpr uint32_t kAll = CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC;
  if (naddr == nullptr || rights == 0 || (rights & ~kAll) != 0) {
    return because(Status::kInval, "no address, no right or an unknown one");
  }
  const bool any = naddr == CMI_NADDR_ANY;
  NodeId node;
  if (!any) {
    auto info = access::decode_naddr(naddr);
    if (!info) return because(Status::kInval, "the address is malformed");
    node = info->node;
  }
  SignalsBlocked quiet;
  const auto segment = known(seg);
  if (!segment) return segment.status();
  if (segment->removed || segment->kind != node::SegmentKind::kHome) {
    return because(Status::kInval, "no such segment at home, or it was removed");
  }
  if (!engine_->home().owns(seg)) return because(Status::kPerm, "another process made it");
  auto object = issue(access::kTokenSize, true, seg);
  if (!object) return object.status();
  auto token = engine_->home().exports().new_token(seg, any, node, rights, part);
  Status status = token.status();
  auto* bytes = static_cast<std::byte*>(*object);
  if (ok(status)) status = access::encode_token(*token, {bytes, access::kTokenSize}, version());
  if (!ok(status)) {
    revoke_issued(*object, {bytes, access::kTokenSize}, true);
    return status;
  }
  return static_cast<cmi_token*>(*object);
}

Status Context::tok_del(const cmi_token* token) {
  if (token == nullptr) return because(Status::kInval, "the token is null");
  auto info = access::decode_token(token);
  if (!info) return because(Status::kInval, "the token is malformed");
  SignalsBlocked quiet;
  std::byte content[access::kTokenSize];
  if (Status s = access::encode_token(*info, content, version()); !ok(s)) return s;
  const Status status = engine_->home().exports().delete_token(*info, Deadline::in(kRevokeTimeout));
  // A token that went with its removed segment has nothing left to revoke; its bytes are still
  // ours.
  const bool ours = (ok(status) || (status == Status::kInval && info->home == id_)) &&
                    revoke_issued(token, content, true);
  return ours ? Status::kOk : status;
}

}  // namespace cmi::context
