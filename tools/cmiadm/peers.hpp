// Names of what lies elsewhere: listeners, providers, tokens. Pure.
#pragma once

#include <string>

#include "core/access/handles.hpp"
#include "fabric/reach.hpp"

namespace cmi::adm {

using fabric::listener_text;

// As digits.
std::string fingerprint(uint32_t token_fingerprint);

}  // namespace cmi::adm
