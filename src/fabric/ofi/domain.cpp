// See domain.hpp.
#include "fabric/ofi/domain.hpp"

#include <rdma/fi_endpoint.h>

#include <algorithm>

#include "core/base/ids.hpp"
#include "core/base/log.hpp"
#include "fabric/ofi/endpoint.hpp"
#include "fabric/ofi/region.hpp"

namespace cmi::fabric::ofi {

namespace {
// Bounds one operation, so that no deadline has to allow for more than this at wire speed.
constexpr size_t kMaxRma = size_t{64} << 20;

class NobodyListens final : public Receiver {
  void on_message(Endpoint&, Bytes) override {}
};

Status failed(const fi_info& info, const char* what, int rc) {
  trace(kFacIni, kWarn, "provider {}: {}: {}", info.fabric_attr->prov_name, what, error_text(rc));
  return rc == -FI_ENOMEM ? Status::kNoMem : Status::kNotSupp;
}
}  // namespace

Result<std::unique_ptr<Fabric>> OfiFabric::open(Info info) {
  std::unique_ptr<OfiFabric> f(new OfiFabric(std::move(info)));
  if (Status s = f->start(); !ok(s)) return s;
  if (Status s = f->probe(); !ok(s)) return s;
  return std::unique_ptr<Fabric>(std::move(f));
}

Status OfiFabric::start() {
  KeepSignalHandlers keep;
  CloseOnExec mark;
  fid_fabric* fabric = nullptr;
  if (int rc = libfabric()->fabric(info_->fabric_attr, &fabric, nullptr); rc != 0)
    return failed(*info_, "fabric", rc);
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  if (int rc = fi_domain(fabric, info_.get(), &domain, nullptr); rc != 0)
    return failed(*info_, "domain", rc);
  domain_.reset(domain);

  traits_.provider = info_->fabric_attr->prov_name;
  traits_.ordered_after_write =
      (info_->tx_attr->msg_order & info_->rx_attr->msg_order & FI_ORDER_SAW) != 0;
  traits_.cheap_regions =
      (info_->domain_attr->mr_mode & (FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL)) == 0;
  traits_.max_message = std::min(kMaxMessage, info_->ep_attr->max_msg_size);
  traits_.max_rma = std::min(kMaxRma, info_->ep_attr->max_msg_size);
  return Status::kOk;
}

Status OfiFabric::probe() {
  if (traits_.max_message < kMaxMessage) return failed(*info_, "messages too small", FI_EMSGSIZE);
  NobodyListens nobody;
  Result<std::unique_ptr<OfiEndpoint>> ep = OfiEndpoint::open(*this, nobody);
  if (!ep) return ep.status();
  alignas(kPageSize) static std::byte memory[kPageSize];
  Result<std::unique_ptr<Region>> region =
      register_memory(memory, sizeof memory, kRead, random_u64());
  if (!region) return region.status();
  traits_.wait_fd = (*ep)->wait_fd() >= 0;
  traits_.cas = (*ep)->can_cas();
  trace(kFacIni, kInfo, "provider {} on {}: cas {}, descriptor {}, ordered {}, mr_mode {:#x}",
        traits_.provider, info_->domain_attr->name, traits_.cas, traits_.wait_fd,
        traits_.ordered_after_write, info_->domain_attr->mr_mode);
  return Status::kOk;
}

Result<std::unique_ptr<Endpoint>> OfiFabric::open_endpoint(Receiver& receiver) {
  Result<std::unique_ptr<OfiEndpoint>> ep = OfiEndpoint::open(*this, receiver);
  if (!ep) return ep.status();
  return std::unique_ptr<Endpoint>(ep.take());
}

Result<std::unique_ptr<Region>> OfiFabric::register_memory(void* addr, size_t len, uint32_t rights,
                                                           uint64_t wanted_key) {
  return OfiRegion::open(*this, addr, len, rights, wanted_key);
}

}  // namespace cmi::fabric::ofi
