// What libfabric's error numbers are taken for. Hints only: providers report a refused key and a
// dead peer alike. No state; any thread.
#pragma once

#include "fabric/fabric.hpp"

namespace cmi::fabric::ofi {

// `err` of an error completion, positive.
Cause cause_of(int err);
// True when the error means that the connection is gone, not just this operation.
bool ends_connection(int err);
// Result of a posting call (0 or a negative number).
Post post_of(long result);
// Result of a call that sets an endpoint up, traced. `rc` is negative.
Status failed(const char* what, int rc);

}  // namespace cmi::fabric::ofi
