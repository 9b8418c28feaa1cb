// cmi_ofi_offer, cmi_ofi_find: how processes find each other's segments.
#include <cmi/ofi/cmi_impl.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "core/access/handles.hpp"
#include "core/api/calls.hpp"
#include "core/api/entry.hpp"
#include "core/base/clock.hpp"
#include "core/rendezvous/folder_offers.hpp"
#include "core/rendezvous/search.hpp"

using namespace cmi;  // the C names live outside of any namespace

namespace {

struct Named {
  rendezvous::Place place;
  std::string name;
};

// Copies of what the client names, or why it is not taken.
Result<Named> named(context::Context& c, const char* where, const char* name) {
  if (where == nullptr || name == nullptr) return because(Status::kInval, "a pointer is null");
  const std::string place(where, ::strnlen(where, rendezvous::kMaxWhere + 1));
  Named n{{}, {name, ::strnlen(name, rendezvous::kMaxWhere)}};
  if (!rendezvous::legal_offer_name(n.name)) {
    return because(Status::kInval, "a name is 1 to 200 letters, digits, '.', '-' and '_'");
  }
  auto parsed = rendezvous::parse_place(place, c.secret());
  if (!parsed) return parsed.status();
  n.place = parsed.take();
  return n;
}

using Kind = rendezvous::Place::Kind;

Status offer_at(context::Context& c, const Named& at, const rendezvous::Offer& offer) {
  switch (at.place.kind) {
    case Kind::kFolder:
      return rendezvous::write_offer(at.place.folder, at.name, offer);
    case Kind::kTcp:
      return c.tcp_offers().put(at.place, at.name, offer);
    case Kind::kPmix:
      return c.pmix_offers().put(at.place.rank, at.name, offer);
  }
  return Status::kInval;
}

Status take_back(context::Context& c, const Named& at) {
  switch (at.place.kind) {
    case Kind::kFolder:
      return rendezvous::remove_offer(at.place.folder, at.name);
    case Kind::kTcp:
      return c.tcp_offers().remove(at.place, at.name);
    case Kind::kPmix:
      return because(Status::kNotSupp, "what is offered with PMIx stays until the job's end");
  }
  return Status::kInval;
}

const char* shown(const char* text) { return text != nullptr ? text : "null"; }

// The segment that is offered, imported, with its token set.
cmi_seg import_offer(cmi_ctxt* ctxt, rendezvous::Offer& offer) {
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
  context::Context* const c = api::enter(ctxt, kFacSeg, "cmi_ofi_offer");
  if (c == nullptr) return -1;
  return api::finish(
      kFacSeg,
      [&]() -> Status {
        const auto at = named(*c, where, name);
        if (!at) return at.status();
        if (rseg == nullptr && tok == nullptr) {
          SignalsBlocked quiet;
          return take_back(*c, *at);
        }
        const auto handle = access::copy_object(rseg), token = access::copy_object(tok);
        if (!handle || !token) return because(Status::kInval, "not a handle and a token");
        SignalsBlocked quiet;
        return offer_at(*c, *at, {handle->bytes, token->bytes});
      },
      "cmi_ofi_offer({}, {})", shown(where), shown(name));
}

extern "C" cmi_seg cmi_ofi_find(cmi_ctxt* ctxt, const char* where, const char* name,
                                uint32_t timeout_ms) {
  context::Context* const c = api::enter(ctxt, kFacSeg, "cmi_ofi_find");
  if (c == nullptr) return CMI_SEG_INVALID;
  const Deadline deadline = Deadline::in(timeout_ms * kMilli);
  std::optional<rendezvous::Search> search;
  std::optional<rendezvous::Offer> offer, gone;
  for (;;) {
    const int found = api::finish(
        kFacSeg,
        [&]() -> Status {
          if (!search) {
            auto at = named(*c, where, name);
            if (!at) return at.status();
            search.emplace(std::move(at->place), std::move(at->name), c->pmix_offers());
          }
          auto awaited = search->await(gone, deadline);
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
