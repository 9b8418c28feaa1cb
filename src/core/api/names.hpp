// Names of commands, for traces. Pure functions; any thread.
#pragma once

#include <cstdint>

namespace cmi::api {

// Of cmi_ctl, seg_ctl or attr_get: they share no value. "unknown" where there is none.
const char* command_name(int32_t command);

}  // namespace cmi::api
