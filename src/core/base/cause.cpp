#include "core/base/cause.hpp"

namespace cmi {

constinit thread_local Cause t_cause;

const char* take_cause(Status status) {
  const Cause cause = t_cause;
  t_cause = {};
  return cause.status == status ? cause.words : nullptr;
}

}  // namespace cmi
