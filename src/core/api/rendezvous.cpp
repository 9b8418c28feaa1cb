// cmi_ofi_offer, cmi_ofi_find: how processes that share a folder find each other's segments.
#include <cmi/ofi/cmi_impl.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "core/access/offer.hpp"
#include "core/api/calls.hpp"
#include "core/api/entry.hpp"
#include "core/base/clock.hpp"

using namespace cmi;  // the C names live outside of any namespace

namespace {

constexpr size_t kMaxFolder = 4000;  // characters of a path
// Between looks at the folder, growing.
constexpr Nanos kFirstNap = kMilli, kLongestNap = 50 * kMilli;

struct Place {
  std::string folder, name;
};

// Copies of what the client names, or why it is not taken.
Result<Place> place(const char* where, const char* name) {
  if (where == nullptr || name == nullptr) return because(Status::kInval, "a pointer is null");
  Place p{{where, ::strnlen(where, kMaxFolder + 1)}, {name, ::strnlen(name, kMaxFolder)}};
  if (p.folder.empty() || p.folder.size() > kMaxFolder ||
      p.folder.find("://") != std::string::npos) {
    return because(Status::kInval, "where is not the path of a folder");
  }
  if (!access::legal_offer_name(p.name)) {
    return because(Status::kInval, "a name is 1 to 200 letters, digits, '.', '-' and '_'");
  }
  return p;
}

const char* shown(const char* text) { return text != nullptr ? text : "null"; }

void nap(Nanos span) {
  const timespec t{static_cast<time_t>(span / kSecond), static_cast<long>(span % kSecond)};
  ::nanosleep(&t, nullptr);
}

// An offer other than `gone`, whose home is not there any more. kReconfig, kInval: none by then.
Result<access::Offer> await_offer(const Place& at, const std::optional<access::Offer>& gone,
                                  Deadline deadline) {
  for (Nanos span = kFirstNap;; span = std::min(2 * span, kLongestNap)) {
    auto offer = access::read_offer(at.folder, at.name);
    if (offer && gone && *offer == *gone) {
      offer = because(Status::kReconfig, "the home of what is offered is gone");
    }
    const Status s = offer.status();
    if (ok(s) || s == Status::kPerm || s == Status::kNoMem || deadline.passed()) return offer;
    nap(std::min(span, deadline.left()));
  }
}

// The segment that is offered, imported, with its token set.
cmi_seg import_offer(cmi_ctxt* ctxt, access::Offer& offer) {
  const cmi_seg seg = api::seg_imp(ctxt, reinterpret_cast<cmi_rseg*>(offer.rseg.data()));
  if (seg == CMI_SEG_INVALID) return seg;
  cmi_ds ds;
  std::memset(&ds, 0, sizeof ds);
  ds.op.token.tok = reinterpret_cast<cmi_token*>(offer.token.data());
  if (api::seg_ctl(ctxt, seg, CMI_SEG_TOKEN, &ds) == 0) return seg;
  const cmi_error error = context::t_error;
  char why[api::kErrorTextSize];
  std::strncpy(why, api::error_text(), sizeof why - 1)[sizeof why - 1] = '\0';
  static_cast<void>(api::seg_ctl(ctxt, seg, CMI_SEG_RM, nullptr));
  api::fail(kFacSeg, error, "{}", static_cast<const char*>(why));
  return CMI_SEG_INVALID;
}

// Of a failed import: another process may offer the segment anew.
bool home_is_gone() {
  return context::t_error == CMI_ERR_INVAL || context::t_error == CMI_ERR_RECONFIG;
}

}  // namespace

extern "C" int cmi_ofi_offer(cmi_ctxt* ctxt, const char* where, const char* name,
                             const cmi_rseg* rseg, const cmi_token* tok) {
  if (api::enter(ctxt, kFacSeg, "cmi_ofi_offer") == nullptr) return -1;
  return api::finish(
      kFacSeg,
      [&]() -> Status {
        const auto at = place(where, name);
        if (!at) return at.status();
        if (rseg == nullptr && tok == nullptr) return access::remove_offer(at->folder, at->name);
        const auto handle = access::copy_object(rseg), token = access::copy_object(tok);
        if (!handle || !token) return because(Status::kInval, "not a handle and a token");
        SignalsBlocked quiet;
        return access::write_offer(at->folder, at->name, {handle->bytes, token->bytes});
      },
      "cmi_ofi_offer({}, {})", shown(where), shown(name));
}

extern "C" cmi_seg cmi_ofi_find(cmi_ctxt* ctxt, const char* where, const char* name,
                                uint32_t timeout_ms) {
  if (api::enter(ctxt, kFacSeg, "cmi_ofi_find") == nullptr) return CMI_SEG_INVALID;
  const Deadline deadline = Deadline::in(timeout_ms * kMilli);
  std::optional<access::Offer> offer, gone;
  for (;;) {
    const int found = api::finish(
        kFacSeg,
        [&] {
          const auto at = place(where, name);
          if (!at) return at.status();
          auto awaited = await_offer(*at, gone, deadline);
          if (awaited) offer = awaited.take();
          return awaited.status();
        },
        "cmi_ofi_find({}, {})", shown(where), shown(name));
    if (found != 0) return CMI_SEG_INVALID;
    const cmi_seg seg = import_offer(ctxt, *offer);
    if (seg != CMI_SEG_INVALID || !home_is_gone() || deadline.passed()) return seg;
    gone = std::exchange(offer, std::nullopt);
  }
}
