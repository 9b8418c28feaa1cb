// What the CMI_ variables of the environment ask for, checked and with defaults filled in.
// Read once by each first cmi_ini, in its thread; applying the values is for the context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/clock.hpp"
#include "core/base/fd.hpp"
#include "core/base/status.hpp"

namespace cmi::context {

struct Environment {
  enum class FaultMode : uint8_t { kSignal, kThread };
  struct TraceWish {
    uint32_t facilities = 0;  // Facility
    uint32_t level = 0;       // Level
  };

  std::string provider;               // CMI_PROVIDER, a list without `local`; empty: the best one
  std::string address;                // CMI_ADDRESS, a list; empty: loopback
  std::string node_name;              // CMI_NODE; never empty
  std::string runtime_dir;            // CMI_RUNTIME_DIR; absolute, need not exist
  bool default_dir = false;           // it was not named, and may be another one when it is made
  uint64_t mem_max = 0;               // CMI_MEM_MAX, bytes; never 0
  Nanos dead_after = 10 * kSecond;    // CMI_DEAD_AFTER; of silence, then a peer counts as dead
  Nanos join_timeout = 30 * kSecond;  // CMI_JOIN_TIMEOUT; seg_imp, while the home answers at all
  FaultMode fault = FaultMode::kSignal;
  bool local = true;               // CMI_LOCAL; homes and importers of one machine share memory
  uint32_t kernel = UINT32_MAX;    // CMI_KERNEL, as kernel_version(); the newest to make use of
  std::optional<TraceWish> trace;  // CMI_TRACE
  std::string secret;              // CMI_SECRET, of offers over tcp; empty: none
  bool fatal_line = true;          // CMI_FATAL_LINE; see memory::write_fatal_line()
  Fd trace_fd;                     // CMI_TRACE_FILE, open for appending; none: there is none
};

// kInval after one alert line that names the variable, if a value cannot be parsed. Variables that
// are set to the empty string are set; unknown ones are not looked at.
Result<Environment> read_environment();

}  // namespace cmi::context
