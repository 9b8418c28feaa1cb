#include "core/context/services.hpp"

#include <algorithm>

#include "core/base/cause.hpp"

namespace cmi::context {

Result<node::SegmentInfo> Services::known(int32_t seg) const {
  auto info = node.segments().find(seg);
  if (info) return info;
  return because(info.status(),
                 info.status() == Status::kInval ? "no such segment on this node" : kRegistryHeld);
}

// The client's own timeout, where it has set one.
memory::JoinTime Services::join_time() const {
  const bool set = engine.importer().reconf_timeout().is_set();
  const Nanos answer = set ? std::max(call_timeout(), kFirstContact) : environment.join_timeout;
  return {Deadline::in(call_timeout()), Deadline::in(answer)};
}

Nanos Services::longest_wait() const {
  return std::max(environment.dead_after, call_timeout()) + kAfterVerdict;
}

memory::EndWait Services::end_wait() const {
  const bool set = engine.importer().reconf_timeout().is_set();
  return {kRevokeTimeout, set ? std::max(call_timeout(), kLeastEnd) : longest_wait()};
}

}  // namespace cmi::context
