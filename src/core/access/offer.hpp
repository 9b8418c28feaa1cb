// What a process leaves in a folder for others to find under a name: the handle of a segment and a
// token, each as its word of text_form.hpp on a line of its own, in the file NAME.cmi of mode 0600.
// The file appears whole or not at all, and takes the place of an earlier one.
//
// Any thread, without locks. A file is trusted only if it is a regular one of the effective user.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.hpp"

namespace cmi::access {

struct Offer {
  std::vector<std::byte> rseg, token;  // whole objects
  bool operator==(const Offer&) const = default;
};

// Whether a name can be offered: 1 to 200 letters, digits, '.', '-' and '_', no '.' first.
bool legal_offer_name(const std::string& name);

// All three take an absolute or relative path of a folder, and a legal name.

// kInval: no folder, or not handle and token of the same segment; kPerm: it may not be written to;
// kNoMem: no room, or no descriptors.
Status write_offer(const std::string& folder, const std::string& name, const Offer& offer);
// kReconfig: there is none, or no such folder; kPerm: another user's, or it may not be read;
// kInval: damaged; kNoMem: no descriptors.
Result<Offer> read_offer(const std::string& folder, const std::string& name);
// No offer is left there; that there was none is kOk, too. kPerm, kInval: as write_offer().
Status remove_offer(const std::string& folder, const std::string& name);

}  // namespace cmi::access
