// Handles, tokens and node addresses as one printable word, for command lines, files and the
// environment: "cmi1-rseg-", "cmi1-token-" or "cmi1-naddr-", and the object up to its filler in
// base64url (RFC 4648, section 5) without padding. The 1 is the version of this form. The object's
// own checksum finds a word that was changed or cut. The word for a token is a secret as the token.
// Any thread, without locks.
#pragma once

#include <string>
#include <string_view>

#include "core/access/handles.hpp"

namespace cmi::access {

// Characters of the longest word: four for each three bytes of the largest object.
inline constexpr size_t kMaxText = sizeof "cmi1-token-" - 1 + kRsegSize / 3 * 4;

// The word for an object; copy_object() reads it. kInval: as there.
Result<std::string> to_text(const void* object);
// The object that a word stands for. kInval: it is no such word, or a damaged one.
Result<ObjectBytes> from_text(std::string_view text);
// Whether it begins as a word of a form to come does.
bool is_of_other_version(std::string_view text);

}  // namespace cmi::access
