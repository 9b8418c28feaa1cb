// See domain.hpp.
#include "fabric/ofi/domain.hpp"

#include <rdma/fi_endpoint.h>

#include <algorithm>

#include "core/base/log.hpp"
#include "fabric/ofi/endpoint.hpp"
#include "fabric/ofi/region.hpp"
#include "fabric/ofi/trial.hpp"
#include "fabric/split.hpp"

namespace cmi::fabric::ofi {

namespace {
Status failed(const fi_info& info, const char* what, int rc) {
  trace(kFacIni, kWarn, "provider {}: {}: {}", info.fabric_attr->prov_name, what, error_text(rc));
  return rc == -FI_ENOMEM ? Status::kNoMem : Status::kNotSupp;
}
}  // namespace

Result<std::unique_ptr<Fabric>> OfiFabric::open(Info info, bool tried, Opener opener) {
  std::unique_ptr<OfiFabric> f(new OfiFabric(std::move(info)));
  if (Status s = f->start(opener); !ok(s)) return s;
  if (Status s = f->probe(tried); !ok(s)) return s;
  return std::unique_ptr<Fabric>(std::move(f));
}

Status OfiFabric::start(Opener opener) {
  KeepSignalHandlers keep;
  CloseOnExec mark;
  fid_fabric* fabric = nullptr;
  if (int rc = opener(info_->fabric_attr, &fabric, nullptr); rc != 0)
    return failed(*info_, "fabric", rc);
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  if (int rc = fi_domain(fabric, info_.get(), &domain, nullptr); rc != 0)
    return failed(*info_, "domain", rc);
  domain_.reset(domain);

  traits_.provider = info_->fabric_attr->prov_name;
  // TCP's providers name a domain after the interface, verbs after the device.
  if (info_->domain_attr->name != nullptr) traits_.device = info_->domain_attr->name;
  traits_.ordered_after_write =
      (info_->tx_attr->msg_order & info_->rx_attr->msg_order & FI_ORDER_SAW) != 0;
  traits_.cheap_regions =
      (mr_mode() & (FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_LOCAL | FI_MR_RAW | FI_MR_ENDPOINT)) ==
      0;
  traits_.max_message = std::min(kMaxMessage, info_->ep_attr->max_msg_size);
  traits_.max_rma = std::min(kWholeRma, info_->ep_attr->max_msg_size);
  return Status::kOk;
}

Status OfiFabric::probe(bool tried) {
  if (traits_.max_message < kMaxMessage) return failed(*info_, "messages too small", FI_EMSGSIZE);
  {
    NobodyListens nobody;
    Result<std::unique_ptr<OfiEndpoint>> ep = OfiEndpoint::open(*this, nobody);
    if (!ep) return ep.status();
    traits_.wait_fd = (*ep)->wait_fd() >= 0;
    traits_.cas = (*ep)->can_cas();
  }
  if (!tried) {
    const Result<Findings> found = try_out(*this, traits_.cas);
    if (!found) return found.status();
    traits_.cas = found->cas;
  }
  trace(kFacIni, kInfo, "provider {} on {}: cas {}, descriptor {}, ordered {}, mr_mode {:#x}",
        traits_.provider, info_->domain_attr->name, traits_.cas, traits_.wait_fd,
        traits_.ordered_after_write, mr_mode());
  return Status::kOk;
}

Result<std::unique_ptr<Endpoint>> OfiFabric::open_endpoint(Receiver& receiver, Endpoint* beside) {
  Result<std::unique_ptr<OfiEndpoint>> ep =
      OfiEndpoint::open(*this, receiver, static_cast<OfiEndpoint*>(beside));
  if (!ep) return ep.status();
  return std::unique_ptr<Endpoint>(ep.take());
}

Result<std::unique_ptr<Region>> OfiFabric::register_memory(void* addr, size_t len, uint32_t rights,
                                                           uint64_t wanted_key, Endpoint* through) {
  return OfiRegion::open(*this, addr, len, rights, wanted_key, static_cast<OfiEndpoint*>(through));
}

Result<RemoteKey> OfiFabric::map_key(RemoteKey told, Bytes raw) {
  if ((mr_mode() & FI_MR_RAW) == 0) return Fabric::map_key(told, raw);
  if (raw.empty() || raw.size() != info_->domain_attr->mr_key_size) return Status::kInval;
  std::vector<std::byte> bytes(raw.begin(), raw.end());
  Guard g(mapped_mu_);
  auto [it, fresh] = mapped_.try_emplace(bytes, 0);
  if (fresh) {
    const int rc = fi_mr_map_raw(domain_.get(), told.base, reinterpret_cast<uint8_t*>(bytes.data()),
                                 bytes.size(), &it->second, 0);
    if (rc != 0) {
      mapped_.erase(it);
      trace(kFacTok, kWarn, "a raw key is not taken: {}", error_text(rc));
      return rc == -FI_ENOMEM ? Status::kNoMem : Status::kInval;
    }
  }
  told.key = it->second;
  return told;
}

OfiFabric::~OfiFabric() {
  for (auto& [raw, key] : mapped_) fi_mr_unmap_key(domain_.get(), key);
}

}  // namespace cmi::fabric::ofi
