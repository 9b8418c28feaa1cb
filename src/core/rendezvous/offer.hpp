// What a process leaves for others to find under a name: the handle of a segment and a token for
// it, each as its word of text_form.hpp on a line of its own. Any thread, without locks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/access/text_form.hpp"
#include "core/base/status.hpp"

namespace cmi::rendezvous {

struct Offer {
  std::vector<std::byte> rseg, token;  // whole objects
  bool operator==(const Offer&) const = default;
};

// Bytes of the longest text of an offer.
inline constexpr size_t kMaxOfferText = 2 * (access::kMaxText + 1);

// Whether a name can be offered: 1 to 200 letters, digits, '.', '-' and '_', no '.' first.
bool legal_offer_name(std::string_view name);

// The two words, each with the end of its line. kInval: not a handle and a token of one segment.
Result<std::string> offer_text(const Offer& offer);
// The reverse. kInval: it is no such text, or a damaged one.
Result<Offer> parse_offer(std::string_view text);

}  // namespace cmi::rendezvous
