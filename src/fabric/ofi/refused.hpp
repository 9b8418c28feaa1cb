// Providers that are not used though libfabric offers them, because what they do to a process
// cannot be undone by trying: a crash or a call that does not return. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace cmi::fabric::ofi {

// Why the provider of this name, as libfabric spells it, is not used; null where it may be tried.
// `version` as fi_version() tells it: the words name what was seen to fail with such versions.
const char* why_refused(std::string_view provider, uint32_t version);

}  // namespace cmi::fabric::ofi
