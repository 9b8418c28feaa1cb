// Names of what lies elsewhere: doors, providers, tokens. Pure.
#pragma once

#include <string>

#include "core/access/handles.hpp"

namespace cmi::adm {

// "10.0.0.1:41234" for a socket address, else its bytes in hexadecimal digits.
std::string door_text(Bytes door);

// As digits.
std::string fingerprint(uint32_t token_fingerprint);

}  // namespace cmi::adm
