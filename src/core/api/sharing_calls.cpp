// The C entries that export and import segments, and those of tokens.
#include "core/api/calls.hpp"
#include "core/api/entry.hpp"

namespace cmi::api {

static_assert(fabric::kRead == CMI_ACC_READ && fabric::kWrite == CMI_ACC_WRITE &&
              fabric::kAtomic == CMI_ACC_ATOMIC);

cmi_rseg* seg_exp(cmi_ctxt* ctxt, cmi_seg seg, int32_t attrib) {
  Context* c = enter(ctxt, kFacSeg, "seg_exp");
  if (c == nullptr) return nullptr;
  return finish_object<cmi_rseg*>(
      kFacSeg, nullptr,
      [&] {
        SignalsBlocked quiet;
        return c->sharing().export_segment(seg, attrib);
      },
      "seg_exp(segment {}, attributes {:#x})", seg, attrib);
}

int rseg_del(cmi_ctxt* ctxt, cmi_rseg* rseg) {
  Context* c = enter(ctxt, kFacSeg, "rseg_del");
  if (c == nullptr) return -1;
  return finish(
      kFacSeg,
      [&] {
        return c->sharing().delete_handle(rseg);  // blocks signals once it has read the object
      },
      "rseg_del({})", fmt::ptr(rseg));
}

cmi_seg seg_imp(cmi_ctxt* ctxt, cmi_rseg* rseg) {
  Context* c = enter(ctxt, kFacSeg, "seg_imp");
  if (c == nullptr) return CMI_SEG_INVALID;
  return finish_object<cmi_seg>(
      kFacSeg, CMI_SEG_INVALID,
      [&] {
        return c->sharing().import_segment(rseg);  // blocks signals once it has read the object
      },
      "seg_imp({})", fmt::ptr(rseg));
}

cmi_token* tok_new(cmi_ctxt* ctxt, cmi_seg seg, cmi_naddr* naddr, cmi_acc flags) {
  Context* c = enter(ctxt, kFacTok, "tok_new");
  if (c == nullptr) return nullptr;
  return finish_object<cmi_token*>(
      kFacTok, nullptr,
      [&] {
        return c->sharing().new_token(seg, naddr,
                                      flags);  // blocks signals once it has read the object
      },
      "tok_new(segment {}, {}, rights {:#x})", seg, fmt::ptr(naddr), flags);
}

cmi_token* tok_newva(cmi_ctxt* ctxt, cmi_seg seg, void* va, size_t size, cmi_naddr* naddr,
                     cmi_acc flags) {
  Context* c = enter(ctxt, kFacTok, "tok_newva");
  if (c == nullptr) return nullptr;
  return finish_object<cmi_token*>(
      kFacTok, nullptr,
      [&] {
        return c->sharing().new_token_of_part(seg, va, size, naddr, flags);  // as tok_new
      },
      "tok_newva(segment {}, {}, {} bytes, {}, rights {:#x})", seg, va, size, fmt::ptr(naddr),
      flags);
}

int tok_del(cmi_ctxt* ctxt, cmi_token* tok) {
  Context* c = enter(ctxt, kFacTok, "tok_del");
  if (c == nullptr) return -1;
  return finish(
      kFacTok,
      [&] {
        return c->sharing().delete_token(tok);  // blocks signals once it has read the object
      },
      "tok_del({})", fmt::ptr(tok));
}

}  // namespace cmi::api
