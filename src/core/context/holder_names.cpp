#include "core/context/holder_names.hpp"

#include "core/base/cause.hpp"
#include "core/base/holder.hpp"
#include "core/memory/home/holders.hpp"
#include "core/memory/importer/import_access.hpp"

namespace cmi::context {

Result<uint64_t> Holders::own(const void* addr) {
  const auto view = services_.engine.views().find(addr);
  if (view == nullptr) return because(Status::kInval, "the address is in no view");
  return holder_of(services_.id, view->import != nullptr ? view->import->instance : 0);
}

Result<bool> Holders::gone(const void* addr, uint64_t holder, Nanos within) {
  if (holder == 0 || holder > kHolderMask) return because(Status::kInval, "no name of a user");
  const auto view = services_.engine.views().find(addr);
  if (view == nullptr) return because(Status::kInval, "the address is in no view");
  SignalsBlocked quiet;
  const Deadline deadline = Deadline::in(std::min(within, services_.call_timeout()));
  if (view->import != nullptr) return memory::holder_gone(*view->import, holder, deadline);
  return services_.engine.home().holder_gone(view->segment, holder, deadline);
}

}  // namespace cmi::context
