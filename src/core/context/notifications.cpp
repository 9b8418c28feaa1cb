// Events as clients see them, what asks for one, and the reconfiguration timeout.
#include "core/base/cause.hpp"
#include "core/context/context.hpp"

namespace cmi::context {

std::byte* Context::lowest_view(int32_t segment) {
  SignalsBlocked quiet;
  Guard g(mu_);
  for (auto& [addr, a] : attached_) {  // ascending
    if (a.segment == segment) return static_cast<std::byte*>(addr);
  }
  return nullptr;
}

Status Context::request_map(uint64_t id) {
  if (id == 0) return because(Status::kInval, "a request of 0");
  return map_maker_->request(id);
}

Status Context::set_reconf_timeout(uint32_t milliseconds) {
  // With none at all no access could ever succeed.
  if (milliseconds == 0) return because(Status::kInval, "a timeout of 0");
  engine_->importer().reconf_timeout().set(milliseconds * kMilli);
  return Status::kOk;
}

}  // namespace cmi::context
