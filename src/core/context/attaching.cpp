// Views of segments: attaching and detaching, and the imports that come and go with them.
#include <utility>

#include "core/base/cause.hpp"
#include "core/base/mutation.hpp"
#include "core/context/segments.hpp"

namespace cmi::context {

namespace {
constexpr const char* kQuiesced = "the segment is quiesced";
}  // namespace

// The import behind a proxy's id: ours, or made here for one that another process of the node
// imported, with that process's token (each process has its own cache: rule 13). It counts as a
// view, so that the last seg_dt of another thread does not end it.
Result<std::shared_ptr<memory::Import>> Segments::import_of(int32_t seg) {
  if (auto import = imports_.begin_view(seg); import != nullptr) return import;
  auto blob = services_.node.proxies().blob(seg);
  if (!blob) return blob.status();
  if (blob->size() < access::kRsegSize) return Status::kInval;
  auto rseg = access::decode_rseg(blob->data());
  if (!rseg) return rseg.status();
  auto import =
      services_.engine.importer().joining().import(*rseg, seg, false, services_.join_time());
  if (!import) return import.status();
  uint64_t version = 0;
  auto token = services_.node.proxies().token(seg, &version);
  if (token && token->size() >= access::kTokenSize) {
    if (auto t = access::decode_token(token->data()); t) {
      (void)services_.engine.importer().tokens().set(*import, *t,
                                                     Deadline::in(services_.call_timeout()));
      memory::Tokens::took(**import, version);
    }
  }
  auto kept = imports_.begin_view(seg, *import);
  if (kept == *import) {
    cache_sizes_.start(kept);
  } else {  // another thread made one at the same time: one is enough
    services_.engine.importer().leaving().leave(*import, {Deadline::in(services_.call_timeout())});
  }
  return kept;
}

Result<void*> Segments::attach(int32_t seg, void* addr, int32_t flags) {
  if ((flags & ~CMI_SEG_READ) != 0) return because(Status::kNotSupp, "an unknown flag");
  const auto info = services_.known(seg);
  if (!info) return info.status();
  if (info->removed) return because(Status::kInval, "the segment was removed");
  if (reinterpret_cast<uintptr_t>(addr) % access::page_size_of(info->flags) != 0) {
    return because(Status::kInval, access::large_pages(info->flags)
                                       ? "the address is not a multiple of seg_lrgpg_alignment"
                                       : "the address is not a multiple of seg_alignment");
  }
  if ((info->marks & node::kMarkQuiesced) != 0) {
    return because(Status::kReconfig, kQuiesced);
  }
  const bool read_only = (flags & CMI_SEG_READ) != 0;
  auto attachment = services_.node.attachments().attach(seg);
  if (!attachment) return attachment.status();
  AttachedView entry{seg, *attachment, nullptr};
  // Unless something below knows better.
  if (addr != nullptr) (void)because(Status::kNoMem, "the range is in use, or memory is short");
  void* at = addr;
  const Status status = info->kind == node::SegmentKind::kHome
                            ? attach_home(*info, &at, read_only)
                            : attach_import(*info, &at, read_only, &entry);
  if (!ok(status)) {
    services_.node.attachments().detach(*attachment);
    leave_import_if_unused(seg);
    return status;
  }
  attached_.add(at, std::move(entry));
  return at;
}

// *at: the address that is wanted, or null; then the view's.
Status Segments::attach_home(const node::SegmentInfo& info, void** at, bool read_only) {
  auto view = services_.engine.home().views().attach(info.id, info.size, *at, read_only,
                                                     Deadline::in(services_.call_timeout()));
  if (view) *at = *view;
  return view.status();
}

Status Segments::attach_import(const node::SegmentInfo& info, void** at, bool read_only,
                               AttachedView* entry) {
  auto import = import_of(info.id);
  if (!import) return import.status();
  memory::Importer& importer = services_.engine.importer();
  // The registry may say it later than the home's answer did.
  Status status = (*import)->events.quiesce.on()
                      ? because(Status::kReconfig, kQuiesced)
                      : importer.views().prepare(**import, (info.flags & CMI_SEG_NORESERVE) == 0);
  if (ok(status)) {
    auto view = importer.views().attach(*import, *at, read_only);
    status = view.status();
    if (view) {
      entry->imported = *view;
      *at = (*view)->addr;
    }
  }
  if (!ok(status)) imports_.end_view(info.id);
  return status;
}

Status Segments::detach(int32_t seg, void* addr) {
  auto taken = attached_.take(addr, seg);
  if (!taken) return because(Status::kInval, "the segment has no view at that address");
  AttachedView& entry = *taken;
  Status status = Status::kOk;
  if (entry.imported != nullptr) {
    // What was stored through this view must not go with it: as long as the home answers it is
    // written back, and a loss has been reported when this returns.
    memory::LossMark ignored = services_.engine.importer().publishing().losses();
    if (!mutated("mutate_detach_publishes_nothing")) {
      (void)services_.engine.importer().publishing().barrier(ignored, services_.longest_wait());
    }
    services_.engine.importer().views().detach(entry.imported,
                                               Deadline::in(services_.call_timeout() + kSecond));
    entry.imported.reset();
    imports_.end_view(seg);
  } else {
    status =
        services_.engine.home().views().detach(seg, addr, Deadline::in(services_.longest_wait()));
    // The client's own memory, and no room to give it back, or it is broken.
    if (status == Status::kNoMem || status == Status::kHw) {
      attached_.add(addr, std::move(entry));
      return status;
    }
  }
  services_.node.attachments().detach(entry.attachment);
  leave_import_if_unused(seg);
  services_.node.reservations().refill();
  return status;
}

void Segments::leave_import_if_unused(int32_t seg) {
  const auto import = imports_.take_unused(seg);
  if (import == nullptr) return;
  services_.engine.importer().leaving().leave(
      import, {Deadline::in(services_.call_timeout()), services_.longest_wait()});
}

void Segments::detach_all(Deadline deadline) {
  for (auto& [addr, view] : attached_.take_all()) {
    if (view.imported != nullptr) {
      services_.engine.importer().views().detach(view.imported, deadline);
    } else {
      (void)services_.engine.home().views().detach(view.segment, addr, deadline, true);
    }
    view.imported.reset();
    services_.node.attachments().detach(view.attachment);
  }
}

}  // namespace cmi::context
