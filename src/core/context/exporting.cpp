#include "core/context/exporting.hpp"

#include <algorithm>

#include "core/base/cause.hpp"
#include "core/base/lock.hpp"
#include "core/base/log.hpp"
#include "core/emulate/emulate.hpp"
#include "core/memory/importer/cache.hpp"

namespace cmi::context {

Result<cmi_rseg*> Sharing::export_segment(int32_t seg, int32_t attrib) {
  if ((attrib & ~CMI_SEG_WRITE_THROUGH) != 0)
    return because(Status::kNotSupp, "an unknown attribute");
  const auto info = services_.known(seg);
  if (!info) return info.status();
  if (info->removed || info->kind != node::SegmentKind::kHome) {
    return because(Status::kInval, "no such segment at home, or it was removed");
  }
  if (!services_.engine.home().owns(seg)) return because(Status::kPerm, "another process made it");
  if ((attrib & CMI_SEG_WRITE_THROUGH) != 0 && !emulate::supported()) {
    return because(Status::kNotSupp, "this build or this CPU cannot use write-through segments");
  }
  std::byte* object = issued_.issue(IssuedObjects::Kind::kHandle, access::kRsegSize);
  if (object == nullptr) return Status::kNoMem;
  auto rseg = services_.engine.home().exports().export_segment(seg, info->flags, attrib);
  Status status = rseg.status();
  if (ok(status))
    status = access::encode_rseg(*rseg, {object, access::kRsegSize}, services_.version);
  if (!ok(status)) {
    issued_.take_back(IssuedObjects::Kind::kHandle, object, {object, access::kRsegSize});
    return status;
  }
  return reinterpret_cast<cmi_rseg*>(object);
}

Status Sharing::delete_handle(const cmi_rseg* rseg) {
  if (rseg == nullptr) return because(Status::kInval, "the handle is null");
  auto info = access::decode_rseg(rseg);
  if (!info) return because(Status::kInval, "the handle is malformed");
  SignalsBlocked quiet;
  if (info->home != services_.id) return because(Status::kPerm, "another context made the handle");
  std::byte content[access::kRsegSize];
  if (Status s = access::encode_rseg(*info, content, services_.version); !ok(s)) return s;
  return issued_.take_back(IssuedObjects::Kind::kHandle, rseg, content)
             ? Status::kOk
             : because(Status::kInval, "the handle was deleted already");
}

// Bytes; 0: no limit. What the machine has no memory for as a whole is cached in half of what is
// left, unless the client has said how much.
size_t Sharing::cache_for(size_t segment) {
  if (const size_t chosen = cache_sizes_.of_new(); chosen != 0) return chosen;
  const uint64_t room = services_.node.segments().room_on_machine(segment);
  if (segment <= room) return 0;
  const auto limit = static_cast<size_t>(std::max<uint64_t>(room / 2, 1));
  trace(kFacSeg, kInfo, "the machine has room for {} of {} bytes: {} of them are cached", room,
        segment, memory::cache_bytes(limit));
  return limit;
}

Result<int32_t> Sharing::import_segment(const cmi_rseg* rseg) {
  if (rseg == nullptr) return because(Status::kInval, "the handle is null");
  auto info = access::decode_rseg(rseg);
  if (!info) return because(Status::kInval, "the handle is malformed");
  SignalsBlocked quiet;
  // Copied field by field above; the registry keeps the checked bytes for the other processes.
  std::byte blob[access::kRsegSize] = {};
  if (Status s = access::encode_rseg(*info, blob); !ok(s)) return s;
  const size_t cache = cache_for(info->size);
  auto id = services_.node.segments().create_proxy(
      info->size, info->flags, blob, access::extensible(info->flags),
      cache != 0 ? memory::cache_bytes(cache) : UINT64_MAX);
  if (!id) return id.status();
  auto import =
      services_.engine.importer().joining().import(*info, *id, true, services_.join_time(), cache);
  if (!import) {
    (void)services_.node.segments().remove(*id);
    return import.status();
  }
  imports_.add_ours(*id, *import);
  cache_sizes_.start(*import);
  return *id;
}

Status Sharing::set_token(int32_t seg, const cmi_token* token) {
  if (token == nullptr) return because(Status::kInval, "the token is null");
  auto info = access::decode_token(token);
  if (!info) return because(Status::kInval, "the token is malformed");
  SignalsBlocked quiet;
  const auto segment = services_.known(seg);
  if (!segment) return segment.status();
  if (segment->removed || segment->kind != node::SegmentKind::kProxy) {
    return because(Status::kInval, "no such import on this node, or it was removed");
  }
  const auto import = imports_.ours(seg);
  if (import == nullptr) return because(Status::kPerm, "another process imported it");
  services_.events.recovered(
      seg);  // first, so that a failure under the new token is an event again
  if (Status s = services_.engine.importer().tokens().set(import, *info,
                                                          Deadline::in(services_.call_timeout()));
      !ok(s)) {
    return s;
  }
  std::byte bytes[access::kTokenSize] = {};
  if (ok(access::encode_token(*info, bytes)))
    (void)services_.node.proxies().store_token(seg, bytes);
  uint64_t version = 0;
  if (services_.node.proxies().token(seg, &version)) memory::Tokens::took(*import, version);
  // A process that attaches from now on finds the new one.
  const int views = imports_.views(seg);
  auto all = services_.node.segments().find(seg);
  if (all && all->attachments > static_cast<uint32_t>(views) &&
      !services_.engine.home().notify_token(seg, Deadline::in(services_.call_timeout()))) {
    trace(kFacTok, kWarn, "CMI_SEG_TOKEN: a process of this node does not answer");
  }
  // The token is in force: where the registry is locked for long, the dirty intent comes later.
  services_.node.marks().note(seg, node::kMarkTokenSet, 0);
  (void)services_.node.marks().settle(node::kUsualWait);
  return Status::kOk;
}

Result<cmi_token*> Sharing::new_token_of_part(int32_t seg, const void* va, size_t size,
                                              const cmi_naddr* naddr, uint32_t rights) {
  if (services_.version < 11) return Status::kNotSupp;
  access::TokenPart part;
  {
    SignalsBlocked quiet;
    const auto info = services_.known(seg);
    if (!info) return info.status();
    if (info->kind != node::SegmentKind::kHome) return Status::kInval;
    if (!services_.engine.home().owns(seg)) return Status::kPerm;
    size_t offset = 0;
    bool read_only = false;
    if (size == 0 || size % kPageSize != 0 ||
        services_.engine.home().views().segment_at(va, &offset, &read_only) != seg ||
        offset % kPageSize != 0 || size > info->size - offset) {
      return Status::kInval;
    }
    part = {offset, size};
  }
  return make_token(seg, &part, naddr, rights);
}

Result<cmi_token*> Sharing::make_token(int32_t seg, const access::TokenPart* part,
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
  const auto segment = services_.known(seg);
  if (!segment) return segment.status();
  if (segment->removed || segment->kind != node::SegmentKind::kHome) {
    return because(Status::kInval, "no such segment at home, or it was removed");
  }
  if (!services_.engine.home().owns(seg)) return because(Status::kPerm, "another process made it");
  std::byte* object = issued_.issue(IssuedObjects::Kind::kToken, access::kTokenSize);
  if (object == nullptr) return Status::kNoMem;
  auto token = services_.engine.home().exports().new_token(seg, any, node, rights, part);
  Status status = token.status();
  if (ok(status))
    status = access::encode_token(*token, {object, access::kTokenSize}, services_.version);
  if (!ok(status)) {
    issued_.take_back(IssuedObjects::Kind::kToken, object, {object, access::kTokenSize});
    return status;
  }
  return reinterpret_cast<cmi_token*>(object);
}

Status Sharing::delete_token(const cmi_token* token) {
  if (token == nullptr) return because(Status::kInval, "the token is null");
  auto info = access::decode_token(token);
  if (!info) return because(Status::kInval, "the token is malformed");
  SignalsBlocked quiet;
  std::byte content[access::kTokenSize];
  if (Status s = access::encode_token(*info, content, services_.version); !ok(s)) return s;
  const Status status = services_.engine.home().exports().delete_token(*info, services_.end_wait());
  // A token that went with its removed segment has nothing left to revoke; its bytes are still
  // ours.
  const bool ours = (ok(status) || (status == Status::kInval && info->home == services_.id)) &&
                    issued_.take_back(IssuedObjects::Kind::kToken, token, content);
  return ours ? Status::kOk : status;
}

}  // namespace cmi::context
