// Names of what lies elsewhere: doors, providers, tokens. Pure.
#pragma once

#include <string>

#include "core/access/handles.hpp"

namespace cmi::adm {

// "10.0.0.1:41234" for a socket address, else its bytes in hexadecimal digits.
std::string door_text(Bytes door);

// Names a token without giving away what proves it: two tokens of one fingerprint are the same.
std::string fingerprint(uint64_t token_id);

}  // namespace cmi::adm
