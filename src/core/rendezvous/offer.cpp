#include "core/rendezvous/offer.hpp"

#include <algorithm>

#include "core/access/handles.hpp"
#include "core/base/cause.hpp"

namespace cmi::rendezvous {

namespace {

constexpr size_t kMaxName = 200;

bool of_one_segment(const Offer& offer) {
  const auto rseg = access::decode_rseg(offer.rseg.data());
  const auto token = access::decode_token(offer.token.data());
  return rseg && token && rseg->uid == token->uid;
}

}  // namespace

bool legal_offer_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '-' || c == '_';
         });
}

Result<std::string> offer_text(const Offer& offer) {
  if (!of_one_segment(offer)) {
    return because(Status::kInval, "not a handle and a token of the same segment");
  }
  const auto rseg = access::to_text(offer.rseg.data());
  const auto token = access::to_text(offer.token.data());
  if (!rseg || !token) return Status::kInval;
  return *rseg + "\n" + *token + "\n";
}

Result<Offer> parse_offer(std::string_view text) {
  using access::ObjectKind;
  const size_t end = text.find('\n');
  if (end != std::string_view::npos && text.ends_with('\n') && end + 1 < text.size()) {
    const auto rseg = access::from_text(text.substr(0, end));
    const auto token = access::from_text(text.substr(end + 1, text.size() - end - 2));
    if (rseg && token && rseg->kind == ObjectKind::kRseg && token->kind == ObjectKind::kToken) {
      Offer offer{rseg->bytes, token->bytes};
      if (of_one_segment(offer)) return offer;
    }
  }
  return because(Status::kInval, "the offer is damaged");
}

}  // namespace cmi::rendezvous
