// Segments as clients see them: making, attaching, detaching, removing, asking.
#include <sys/vfs.h>

#include <algorithm>

#include "core/base/cause.hpp"
#include "core/base/log.hpp"
#include "core/base/mutation.hpp"
#include "core/context/context.hpp"
#include "core/emulate/emulate.hpp"
#include "core/node/large_pages.hpp"

namespace cmi::context {

namespace {
constexpr int32_t kSegGetFlags = CMI_SEG_NORESERVE | CMI_SEG_LOCK | CMI_SEG_LARGE_PAGES |
                                 CMI_SEG_EXTENSIBLE | CMI_SEG_CLIENT_CONSIST |
                                 CMI_SEG_CLIENT_INCONSIST;
// Of memory that the client has already.
constexpr int32_t kNotInPlace = CMI_SEG_LOCK | CMI_SEG_LARGE_PAGES | CMI_SEG_EXTENSIBLE;

constexpr const char* kRegistryHeld = "a process of this node holds its registry and does not run";
}  // namespace

Result<int32_t> Context::seg_getva(void* va, size_t size, int32_t flags) {
  if (version() < 11) return Status::kNotSupp;
  if (va == nullptr || reinterpret_cast<uintptr_t>(va) % kPageSize != 0) return Status::kInval;
  if (size > UINTPTR_MAX - reinterpret_cast<uintptr_t>(va)) return Status::kInval;
  // The client's memory has the pages that it has, and all of them.
  if ((flags & kNotInPlace) != 0) return Status::kNotSupp;
  auto seg = seg_get(size, flags);
  if (!seg) return seg.status();
  auto attachment = node_->attach(*seg);
  Status status = attachment.status();
  if (attachment) status = engine_->home().views().adopt(*seg, va);
  if (!ok(status)) {
    if (attachment) node_->detach(*attachment);
    (void)seg_remove(*seg);
    return status;
  }
  Guard g(mu_);
  attached_[va] = Attached{*seg, *attachment, nullptr};
  return *seg;
}

Result<int32_t> Context::seg_get(size_t size, int32_t flags) {
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
  if (size > std::min<uint64_t>(kMaxSegmentSize, environment_.mem_max)) {
    return because(Status::kNoMem, "more than max_seg_sz");
  }
  return engine_->home().create(size, flags, reservation_.load());
}

// The import behind a proxy's id: ours, or made here for one that another process of the node
// imported, with that process's token (each process has its own cache: rule 13). Counted as a view,
// so that the last seg_dt beside us does not let go of it.
Result<std::shared_ptr<memory::Import>> Context::import_of(int32_t seg) {
  {
    Guard g(mu_);
    auto it = imported_.find(seg);
    if (it != imported_.end()) {
      ++it->second.views;
      return it->second.import;
    }
  }
  auto blob = node_->proxy_blob(seg);
  if (!blob) return blob.status();
  if (blob->size() < access::kRsegSize) return Status::kInval;
  auto rseg = access::decode_rseg(blob->data());
  if (!rseg) return rseg.status();
  auto import = engine_->importer().joining().import(*rseg, seg, false, join_time());
  if (!import) return import.status();
  uint64_t version = 0;
  auto token = node_->proxy_token(seg, &version);
  if (token && token->size() >= access::kTokenSize) {
    if (auto t = access::decode_token(token->data()); t) {
      (void)engine_->importer().tokens().set(*import, *t, Deadline::in(call_timeout()));
      engine_->importer().tokens().took(**import, version);
    }
  }
  std::shared_ptr<memory::Import> kept;
  {
    Guard g(mu_);
    auto [it, fresh] = imported_.try_emplace(seg);
    if (fresh) {
      it->second.import = *import;
      start_cache(*import);
    }
    ++it->second.views;
    kept = it->second.import;
  }
  // Another thread made one at the same time: one is enough.
  if (kept != *import) engine_->importer().leaving().leave(*import, {Deadline::in(call_timeout())});
  return kept;
}

Result<node::SegmentInfo> Context::known(int32_t seg) {
  auto info = node_->find(seg);
  if (info) return info;
  return because(info.status(),
                 info.status() == Status::kInval ? "no such segment on this node" : kRegistryHeld);
}

Result<void*> Context::seg_at(int32_t seg, void* addr, int32_t flags) {
  if ((flags & ~CMI_SEG_READ) != 0) return because(Status::kNotSupp, "an unknown flag");
  const auto info = known(seg);
  if (!info) return info.status();
  if (info->removed) return because(Status::kInval, "the segment was removed");
  if (reinterpret_cast<uintptr_t>(addr) % access::page_size_of(info->flags) != 0) {
    return because(Status::kInval, access::large_pages(info->flags)
                                       ? "the address is not a multiple of seg_lrgpg_alignment"
                                       : "the address is not a multiple of seg_alignment");
  }
  if ((info->marks & node::kMarkQuiesced) != 0) {
    return because(Status::kReconfig, "the segment is quiesced");
  }
  const bool read_only = (flags & CMI_SEG_READ) != 0;
  auto attachment = node_->attach(seg);
  if (!attachment) return attachment.status();
  Attached entry{seg, *attachment, nullptr};
  // Unless something below knows better.
  if (addr != nullptr) (void)because(Status::kNoMem, "the range is in use, or memory is short");
  void* at = nullptr;
  bool counted = false;  // as a view of the import
  Status status = Status::kOk;
  if (info->kind == node::SegmentKind::kHome) {
    auto view = engine_->home().views().attach(seg, info->size, addr, read_only,
                                               Deadline::in(call_timeout()));
    status = view.status();
    if (view) at = *view;
  } else {
    auto import = import_of(seg);
    status = import.status();
    counted = ok(status);
    if (import)
      status =
          engine_->importer().views().prepare(**import, (info->flags & CMI_SEG_NORESERVE) == 0);
    if (ok(status)) {
      auto view = engine_->importer().views().attach(*import, addr, read_only);
      status = view.status();
      if (view) {
        entry.imported = *view;
        at = (*view)->addr;
      }
    }
  }
  if (!ok(status)) {
    node_->detach(*attachment);
    if (counted) {
      Guard g(mu_);
      if (auto it = imported_.find(seg); it != imported_.end()) --it->second.views;
    }
    leave_import_if_unused(seg);
    return status;
  }
  Guard g(mu_);
  attached_[at] = std::move(entry);
  return at;
}

Status Context::seg_dt(int32_t seg, void* addr) {
  Attached entry;
  {
    Guard g(mu_);
    auto it = attached_.find(addr);
    if (it == attached_.end() || it->second.segment != seg) {
      return because(Status::kInval, "the segment has no view at that address");
    }
    entry = std::move(it->second);
    attached_.erase(it);
  }
  Status status = Status::kOk;
  if (entry.imported != nullptr) {
    // What was stored through this view must not go with it: as long as the home answers it is
    // written back, and what is lost has been told when this returns.
    memory::LossMark ignored = engine_->importer().publishing().losses();
    if (!mutated("mutate_detach_publishes_nothing")) {
      (void)engine_->importer().publishing().barrier(ignored, longest_wait());
    }
    engine_->importer().views().detach(entry.imported, Deadline::in(call_timeout() + kSecond));
    entry.imported.reset();
    {
      Guard g(mu_);
      if (auto it = imported_.find(seg); it != imported_.end()) --it->second.views;
    }
  } else {
    status = engine_->home().views().detach(seg, addr, Deadline::in(longest_wait()));
    // The client's own memory, and no room to give it back, or it is broken.
    if (status == Status::kNoMem || status == Status::kHw) {
      Guard g(mu_);
      attached_[addr] = std::move(entry);
      return status;
    }
  }
  node_->detach(entry.attachment);
  leave_import_if_unused(seg);
  node_->refill_reservations();
  return status;
}

void Context::leave_import_if_unused(int32_t seg) {
  std::shared_ptr<memory::Import> import;
  {
    Guard g(mu_);
    auto it = imported_.find(seg);
    if (it == imported_.end() || it->second.views > 0 || (it->second.ours && !it->second.removed)) {
      return;
    }
    import = std::move(it->second.import);
    imported_.erase(it);
  }
  engine_->importer().leaving().leave(import, {Deadline::in(call_timeout()), longest_wait()});
}

Status Context::seg_remove(int32_t seg) {
  const auto info = known(seg);
  // Gone: the node knows whether it was ours, and a second time is fine.
  if (info.status() == Status::kInval) return node_->remove(seg);
  if (!info) return info.status();
  if (Status s = node_->remove(seg); !ok(s)) {
    return because(s, s == Status::kPerm ? "another process made it" : kRegistryHeld);
  }
  events_->forget(seg);
  if (info->kind == node::SegmentKind::kHome) {
    engine_->home().exports().removed(seg, Deadline::in(kRevokeTimeout));
    node_->refill_reservations();
    Guard g(mu_);
    export_cache_.erase(seg);
  } else {
    {
      Guard g(mu_);
      if (auto it = imported_.find(seg); it != imported_.end()) {
        it->second.removed = true;
        it->second.import->events.marked.store(true);
      }
    }
    leave_import_if_unused(seg);
  }
  return Status::kOk;
}

Status Context::seg_status(int32_t seg, cmi_ds* ds) {
  const auto info = known(seg);
  if (!info) return info.status();
  uint32_t flags = 0;
  if ((info->marks & node::kMarkExported) != 0) flags |= CMI_SEG_ST_EXPORTED;
  if ((info->marks & node::kMarkTokenSet) != 0) flags |= CMI_SEG_ST_TOKEN_SET;
  if ((info->marks & node::kMarkQuiesced) != 0) flags |= CMI_SEG_ST_QUIESCED;
  if (info->kind == node::SegmentKind::kProxy) flags |= CMI_SEG_ST_IMPORTED;
  if (info->removed) flags |= CMI_SEG_ST_REMOVED;
  if (engine_->home().recovery().any_in_flux(seg)) flags |= CMI_SEG_ST_INCONSIST;
  ds->status.st_flags = flags;
  ds->status.st_nattach = info->attachments;
  ds->status.st_owner = info->owner_pid;
  return Status::kOk;
}

Status Context::seg_check(int32_t seg, cmi_ds* ds) {
  if (Status s = known(seg).status(); !ok(s)) return s;
  if (!engine_->home().owns(seg)) return because(Status::kPerm, "another process made it");
  auto* at = static_cast<std::byte*>(ds->reco.reco_addr);
  const Status s = engine_->home().recovery().check_in_flux(seg, &at, &ds->reco.reco_size);
  ds->reco.reco_addr = at;
  return s;
}

Status Context::seg_recover(int32_t seg, const cmi_ds& ds) {
  if (Status s = known(seg).status(); !ok(s)) return s;
  if (!engine_->home().owns(seg)) return because(Status::kPerm, "another process made it");
  if (ds.reco.reco_size == 0) return Status::kOk;  // CHECK answers so where nothing is in flux
  return engine_->home().recovery().recover(seg, static_cast<std::byte*>(ds.reco.reco_addr),
                                            ds.reco.reco_size, Deadline::in(call_timeout()));
}

Status Context::seg_info(int32_t seg, cmi_ds* ds) {
  const auto info = known(seg);
  if (!info) return info.status();
  ds->info.seg_align = access::page_size_of(info->flags);
  ds->info.seg_sz = info->size;
  ds->info.seg_brk = info->brk;
  {
    // What this process has heard itself; the registry is told when its lock can be had.
    Guard g(mu_);
    auto it = imported_.find(seg);
    if (it != imported_.end()) {
      ds->info.seg_brk = size_t{it->second.import->brk.load()} * kPageSize;
    }
  }
  ds->info.seg_flags = info->flags;
  return Status::kOk;
}

Status Context::set_break(int32_t seg, size_t to) {
  if (Status s = known(seg).status(); !ok(s)) return s;
  return engine_->home().breaks().set_break(seg, to, reservation_.load(), kRevokeTimeout);
}

Status Context::attribute(int32_t seg, int32_t cmd, size_t* size) {
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
  return known(seg).status();
}

namespace {
// What the file system of this folder has free; unbounded where it does not say, as a tmpfs without
// a size.
uint64_t free_bytes(const std::string& folder) {
  struct statfs fs {};
  if (::statfs(folder.c_str(), &fs) != 0 || fs.f_blocks == 0) return UINT64_MAX;
  return static_cast<uint64_t>(fs.f_bavail) * static_cast<uint64_t>(fs.f_bsize);
}
}  // namespace

void Context::info(cmi_ctl_cfg* cfg) {
  const uint64_t in_use = node_->memory_in_use();
  const uint64_t most = environment_.mem_max;
  // The file system may be smaller than the limit, and others may take of it, such as further
  // nodes.
  const uint64_t free = free_bytes(environment_.runtime_dir);
  const uint64_t left = std::min(most > in_use ? most - in_use : 0, free);
  const uint64_t room = free > UINT64_MAX - in_use ? UINT64_MAX : free + in_use;
  cmi_ctl_cfg c{};
  c.info.max_mem_cfg = most;
  c.info.max_mem_avail = left / kPageSize * kPageSize;
  c.info.max_seg_sz =
      std::min<size_t>(kMaxSegmentSize, std::min(most, room) / kPageSize * kPageSize);
  c.info.max_exp_segs = memory::kMaxExports;
  c.info.max_imp_segs = node::kMaxSegments;
  c.info.max_write_through_segs = emulate::supported() ? memory::kMaxExports : 0;
  c.info.max_acc_toks = memory::kMaxTokens;
  c.info.max_acc_stok = memory::kMaxTokensPerSegment;
  c.info.cur_exp_segs = engine_->home().exports().count();
  {
    Guard g(mu_);
    c.info.cur_imp_segs = static_cast<uint32_t>(
        std::count_if(imported_.begin(), imported_.end(), [](auto& i) { return i.second.ours; }));
  }
  c.info.cache_line_sz = kPageSize;
  c.info.max_reco_segsz = memory::kMaxRecovery;
  c.info.prot_units = kPageSize;
  c.info.seg_alloc_units = kPageSize;
  c.info.seg_alignment = access::page_size_of(0);
  c.info.seg_lrgpg_alignment = access::page_size_of(CMI_SEG_LARGE_PAGES);
  *cfg = c;
}

}  // namespace cmi::context
