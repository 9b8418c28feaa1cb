// Why a call failed, for its trace line: whoever finds it out says it beside the status.
#pragma once

#include "core/base/status.hpp"

namespace cmi {

// Of the calling thread. The words live for ever; they count for a call only if its status is this.
struct Cause {
  Status status = Status::kOk;
  const char* words = nullptr;
};
extern constinit thread_local Cause t_cause;

inline Status because(Status status, const char* words) {
  t_cause = {status, words};
  return status;
}

// What was said of this status since the last call, or null. Forgets it.
const char* take_cause(Status status);

}  // namespace cmi
