// Waiting for what messages bring about: the waiting thread polls the server meanwhile.
#pragma once

#include "core/base/clock.hpp"
#include "fabric/server.hpp"

namespace cmi::memory {

// False: `op` is not done by the deadline. Any thread but the service thread, with no lock held.
bool await(fabric::Op& op, fabric::Server& server, Deadline deadline);

}  // namespace cmi::memory
