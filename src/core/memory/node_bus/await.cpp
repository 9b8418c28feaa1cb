#include "core/memory/node_bus/await.hpp"

#include <algorithm>

#include "core/base/spin.hpp"

namespace cmi::memory {

bool await(fabric::Op& op, fabric::Server& server, Deadline deadline) {
  SpinThenSleep spin(200 * kMicro);
  spin.begin(now(), 10 * kMicro);
  while (!op.done()) {
    if (server.poll() > 0) continue;
    const Nanos t = now();
    if (t >= deadline.at) return false;
    // The service thread takes the answers in, too.
    if (spin.again(t) || server.poll(true) > 0) continue;
    op.nap(std::min(kMilli, deadline.at - t));
  }
  return true;
}

}  // namespace cmi::memory
