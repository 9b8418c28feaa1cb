// The played provider from the top: fabric and domain, and what it says of itself. See
// provider.hpp.
#include "fabric/fake/provider.hpp"

#include <cstring>
#include <utility>

#include "fabric/fake/provider_objects.hpp"
#include "fabric/ofi/domain.hpp"

namespace cmi::fabric::fake {

namespace {

int open_domain(fid_fabric* f, fi_info*, fid_domain** out, void*) {
  static fi_ops ops = closing_ops<FakeDomain>(domain_control);
  static fi_ops_domain domain_ops = [] {
    fi_ops_domain o = {};
    o.size = sizeof o;
    o.av_open = open_av;
    o.cq_open = open_queue;
    o.endpoint = open_endpoint;
    return o;
  }();
  static fi_ops_mr mr_ops = {sizeof(fi_ops_mr), register_mr, nullptr, nullptr};
  auto* d = new FakeDomain;
  d->provider = object<FakeFabricFid>(f).provider;
  d->node = d->provider->net().open();
  d->fid.fid.fclass = FI_CLASS_DOMAIN;
  d->fid.fid.ops = &ops;
  d->fid.ops = &domain_ops;
  d->fid.mr = &mr_ops;
  *out = &d->fid;
  return 0;
}

}  // namespace

Result<std::unique_ptr<Fabric>> Provider::open() {
  if (ofi::libfabric() == nullptr) return Status::kNotSupp;
  ofi::Info info = describe();
  if (info == nullptr) return Status::kNoMem;
  return ofi::OfiFabric::open(std::move(info), false, open_fabric_of);
}

ofi::Info Provider::describe() {
  static fi_ops ops = closing_ops<FakeFabricFid>();
  static fi_ops_fabric fabric_ops = [] {
    fi_ops_fabric o = {};
    o.size = sizeof o;
    o.domain = open_domain;
    o.trywait = fabric_trywait;
    return o;
  }();
  if (ofi::libfabric() == nullptr) return nullptr;
  ofi::Info info(ofi::libfabric()->dupinfo(nullptr));
  if (info == nullptr) return nullptr;
  auto* fabric = new FakeFabricFid;
  fabric->provider = shared_from_this();
  fabric->fid.fid.fclass = FI_CLASS_FABRIC;
  fabric->fid.fid.ops = &ops;
  fabric->fid.ops = &fabric_ops;
  info->fabric_attr->fabric = &fabric->fid;
  info->fabric_attr->prov_name = strdup(modes.name);  // freed with the info
  info->domain_attr->name = strdup(modes.name);
  info->domain_attr->mr_mode = modes.mr_mode;
  info->domain_attr->mr_key_size = modes.key_size;
  info->domain_attr->av_type = FI_AV_TABLE;
  info->ep_attr->max_msg_size = modes.max_message;
  info->tx_attr->inject_size = modes.inject_size;
  info->tx_attr->size = info->rx_attr->size = 256;
  if (modes.ordered) {
    info->tx_attr->msg_order = info->rx_attr->msg_order = FI_ORDER_SAW | FI_ORDER_SAS;
  }
  return info;
}

}  // namespace cmi::fabric::fake

namespace cmi::fabric {
// The object was made beforehand.
int open_fabric_of(fi_fabric_attr* attr, fid_fabric** out, void*) {
  *out = std::exchange(attr->fabric, nullptr);
  return 0;
}

std::shared_ptr<FakeProvider> FakeProvider::make(const ProviderModes& modes) {
  return std::make_shared<fake::Provider>(modes);
}
}  // namespace cmi::fabric
