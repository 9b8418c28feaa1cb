#include "core/context/segments.hpp"

#include <algorithm>

#include "core/base/cause.hpp"
#include "core/node/large_pages.hpp"

namespace cmi::context {

namespace {
constexpr int32_t kSegGetFlags = CMI_SEG_NORESERVE | CMI_SEG_LOCK | CMI_SEG_LARGE_PAGES |
                                 CMI_SEG_EXTENSIBLE | CMI_SEG_CLIENT_CONSIST |
                                 CMI_SEG_CLIENT_INCONSIST;
// Of memory that the client has already.
constexpr int32_t kNotInPlace = CMI_SEG_LOCK | CMI_SEG_LARGE_PAGES | CMI_SEG_EXTENSIBLE;
}  // namespace

Result<int32_t> Segments::make_in_place(void* va, size_t size, int32_t flags) {
  if (services_.version < 11) return Status::kNotSupp;
  if (va == nullptr || reinterpret_cast<uintptr_t>(va) % kPageSize != 0) return Status::kInval;
  if (size > UINTPTR_MAX - reinterpret_cast<uintptr_t>(va)) return Status::kInval;
  // The client's memory has the pages that it has, and all of them.
  if ((flags & kNotInPlace) != 0) return Status::kNotSupp;
  auto seg = make(size, flags);
  if (!seg) return seg.status();
  auto attachment = services_.node.attachments().attach(*seg);
  Status status = attachment.status();
  if (attachment) status = services_.engine.home().views().adopt(*seg, va);
  if (!ok(status)) {
    if (attachment) services_.node.attachments().detach(*attachment);
    (void)remove(*seg);
    return status;
  }
  attached_.add(va, {*seg, *attachment, nullptr});
  return *seg;
}

Result<int32_t> Segments::make(size_t size, int32_t flags) {
  if ((flags & ~kSegGetFlags) != 0) return because(Status::kNotSupp, "an unknown flag");
  if ((flags & CMI_SEG_CLIENT_CONSIST) != 0 && (flags & CMI_SEG_CLIENT_INCONSIST) != 0) {
    return because(Status::kInval, "flags that exclude each other");
  }
  if (size == 0 || size % kPageSize != 0) {
    return because(Status::kInval, "the size is not a multiple of prot_units above 0");
  }
  constexpr int32_t kLargeSteps = CMI_SEG_LARGE_PAGES | CMI_SEG_EXTENSIBLE;
  if ((flags & kLargeSteps) == kLargeSteps && size % node::kLargePage != 0) {
    return because(Status::kInval, "the break of large pages moves by whole ones");
  }
  constexpr int32_t kModes = CMI_SEG_CLIENT_CONSIST | CMI_SEG_CLIENT_INCONSIST;
  if ((flags & kModes) == 0 && client_consistent_.load()) flags |= CMI_SEG_CLIENT_CONSIST;
  if (size > std::min<uint64_t>(kMaxSegmentSize, services_.environment.mem_max)) {
    return because(Status::kNoMem, "more than max_seg_sz");
  }
  return services_.engine.home().create(size, flags, reservation_.key());
}

Status Segments::remove(int32_t seg) {
  const auto info = services_.known(seg);
  // Gone: the node knows whether it was ours, and a second time is fine.
  if (info.status() == Status::kInval) {
    const Status again = services_.node.segments().remove(seg);
    return ok(again) ? services_.engine.home().exports().removed(seg, services_.end_wait()) : again;
  }
  if (!info) return info.status();
  if (Status s = services_.node.segments().remove(seg); !ok(s)) {
    return because(s, s == Status::kPerm ? "another process made it" : kRegistryHeld);
  }
  services_.events.forget(seg);
  if (info->kind == node::SegmentKind::kHome) {
    const Status ended = services_.engine.home().exports().removed(seg, services_.end_wait());
    services_.node.reservations().refill();
    cache_sizes_.forget(seg);
    return ended;
  }
  imports_.mark_removed(seg);
  leave_import_if_unused(seg);
  return Status::kOk;
}

Status Segments::status(int32_t seg, cmi_ds* ds) {
  const auto info = services_.known(seg);
  if (!info) return info.status();
  uint32_t flags = 0;
  if ((info->marks & node::kMarkExported) != 0) flags |= CMI_SEG_ST_EXPORTED;
  if ((info->marks & node::kMarkTokenSet) != 0) flags |= CMI_SEG_ST_TOKEN_SET;
  if ((info->marks & node::kMarkQuiesced) != 0) flags |= CMI_SEG_ST_QUIESCED;
  if (info->kind == node::SegmentKind::kProxy) flags |= CMI_SEG_ST_IMPORTED;
  if (info->removed) flags |= CMI_SEG_ST_REMOVED;
  if (services_.engine.home().recovery().any_in_flux(seg)) flags |= CMI_SEG_ST_INCONSIST;
  ds->status.st_flags = flags;
  ds->status.st_nattach = info->attachments;
  ds->status.st_owner = info->owner_pid;
  return Status::kOk;
}

Status Segments::check(int32_t seg, cmi_ds* ds) {
  if (Status s = services_.known(seg).status(); !ok(s)) return s;
  if (!services_.engine.home().owns(seg)) return because(Status::kPerm, "another process made it");
  auto* at = static_cast<std::byte*>(ds->reco.reco_addr);
  const Status s = services_.engine.home().recovery().check_in_flux(seg, &at, &ds->reco.reco_size);
  ds->reco.reco_addr = at;
  return s;
}

Status Segments::recover(int32_t seg, const cmi_ds& ds) {
  if (Status s = services_.known(seg).status(); !ok(s)) return s;
  if (!services_.engine.home().owns(seg)) return because(Status::kPerm, "another process made it");
  if (ds.reco.reco_size == 0) return Status::kOk;  // CHECK answers so where nothing is in flux
  return services_.engine.home().recovery().recover(seg, static_cast<std::byte*>(ds.reco.reco_addr),
                                                    ds.reco.reco_size,
                                                    Deadline::in(services_.call_timeout()));
}

Status Segments::info(int32_t seg, cmi_ds* ds) {
  const auto info = services_.known(seg);
  if (!info) return info.status();
  ds->info.seg_align = access::page_size_of(info->flags);
  ds->info.seg_sz = info->size;
  ds->info.seg_brk = info->brk;
  // What this process knows itself; it gets into the registry when its lock can be had.
  if (const auto brk = imports_.brk(seg); brk) ds->info.seg_brk = *brk;
  ds->info.seg_flags = info->flags;
  return Status::kOk;
}

Status Segments::set_break(int32_t seg, size_t to) {
  if (Status s = services_.known(seg).status(); !ok(s)) return s;
  return services_.engine.home().breaks().set_break(seg, to, reservation_.key(),
                                                    services_.end_wait());
}

Status Segments::attribute(int32_t seg, int32_t cmd, size_t* size) {
  switch (cmd) {
    case CMI_ATTR_NODEADDR_SIZE:
      *size = access::kNaddrSize;
      return Status::kOk;
    case CMI_ATTR_RSEG_SIZE:
      *size = access::kRsegSize;
      break;
    case CMI_ATTR_TOKEN_SIZE:
      *size = access::kTokenSize;
      break;
    default:
      return because(Status::kInval, "the attribute is unknown");
  }
  return services_.known(seg).status();
}

}  // namespace cmi::context
