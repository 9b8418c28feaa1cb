// Chooses the provider: the first candidate that opens and does what it says.
#include "core/base/log.hpp"
#include "fabric/fabric.hpp"
#include "fabric/ofi/address.hpp"
#include "fabric/ofi/domain.hpp"

namespace cmi::fabric {

Result<std::unique_ptr<Fabric>> open_fabric(const Config& config) {
  if (ofi::libfabric() == nullptr) return Status::kNotSupp;
  ofi::KeepSignalHandlers keep;
  const Result<std::string> address = ofi::local_address(config.address);
  if (!address) return address.status();
  const char* wanted = config.provider.empty() ? "any" : config.provider.c_str();
  for (ofi::Info& info : ofi::candidates(config.provider, *address)) {
    const std::string name = info->fabric_attr->prov_name;
    Result<std::unique_ptr<Fabric>> f = ofi::OfiFabric::open(std::move(info));
    if (!f) continue;  // traced where it failed
    if (config.provider.empty() && !(*f)->traits().wait_fd) {
      trace(kFacIni, kWarn, "provider {}: no descriptor to sleep on", name);
      continue;
    }
    return f;
  }
  alert(kFacIni, "no usable libfabric provider on {} (asked for: {})", *address, wanted);
  return Status::kNotSupp;
}

}  // namespace cmi::fabric
