// The C entries that make, attach and detach segments.
#include "core/api/calls.hpp"
#include "core/api/entry.hpp"

namespace cmi::api {

cmi_seg seg_get(cmi_ctxt* ctxt, size_t size, int32_t flags) {
  Context* c = enter(ctxt, kFacSeg, "seg_get");
  if (c == nullptr) return CMI_SEG_INVALID;
  return finish_object<cmi_seg>(
      kFacSeg, CMI_SEG_INVALID,
      [&] {
        SignalsBlocked quiet;
        return c->segments().make(size, flags);
      },
      "seg_get({} bytes, flags {:#x})", size, flags);
}

cmi_seg seg_getva(cmi_ctxt* ctxt, void* va, size_t size, int32_t flags) {
  Context* c = enter(ctxt, kFacSeg, "seg_getva");
  if (c == nullptr) return CMI_SEG_INVALID;
  return finish_object<cmi_seg>(
      kFacSeg, CMI_SEG_INVALID,
      [&] {
        SignalsBlocked quiet;
        return c->segments().make_in_place(va, size, flags);
      },
      "seg_getva({}, {} bytes, flags {:#x})", va, size, flags);
}

void* seg_at(cmi_ctxt* ctxt, cmi_seg seg, void* addr, int32_t flags) {
  Context* c = enter(ctxt, kFacSeg, "seg_at");
  if (c == nullptr) return nullptr;
  return finish_object<void*>(
      kFacSeg, nullptr,
      [&] {
        SignalsBlocked quiet;
        return c->segments().attach(seg, addr, flags);
      },
      "seg_at(segment {}, {}, flags {:#x})", seg, addr, flags);
}

int seg_dt(cmi_ctxt* ctxt, cmi_seg seg, void* addr) {
  Context* c = enter(ctxt, kFacSeg, "seg_dt");
  if (c == nullptr) return -1;
  return finish(
      kFacSeg,
      [&] {
        SignalsBlocked quiet;
        return c->segments().detach(seg, addr);
      },
      "seg_dt(segment {}, {})", seg, addr);
}

}  // namespace cmi::api
