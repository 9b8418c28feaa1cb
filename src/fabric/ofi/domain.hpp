// One provider opened on one local address: the Fabric of the seam over libfabric. Makes endpoints
// and registrations, and knows what this provider can really do. Any thread.
#pragma once

#include <rdma/fi_domain.h>

#include <map>
#include <vector>

#include "core/base/lock.hpp"
#include "fabric/fabric.hpp"
#include "fabric/lock_order.hpp"
#include "fabric/ofi/descriptors.hpp"
#include "fabric/ofi/handle.hpp"
#include "fabric/ofi/info.hpp"

namespace cmi::fabric::ofi {

class OfiFabric final : public Fabric {
 public:
  using Opener = decltype(Libfabric::fabric);  // fi_fabric, or a stand-in for it
  // Opens the provider and probes it: an endpoint must come up and, unless it was `tried` before by
  // this process, do what it says. The status is traced with its reason.
  static Result<std::unique_ptr<Fabric>> open(Info info, bool tried,
                                              Opener opener = libfabric()->fabric);

  ~OfiFabric() override;

  const Traits& traits() const override { return traits_; }
  Result<std::unique_ptr<Endpoint>> open_endpoint(Receiver& receiver, Endpoint* beside) override;
  Result<std::unique_ptr<Region>> register_memory(void* addr, size_t len, uint32_t rights,
                                                  uint64_t wanted_key, Endpoint* through) override;
  Result<RemoteKey> map_key(RemoteKey told, Bytes raw) override;

  fi_info* info() const { return info_.get(); }
  fid_fabric* fabric() const { return fabric_.get(); }
  fid_domain* domain() const { return domain_.get(); }
  Connections& connections() const { return connections_; }
  // Held around every call that posts, reads a queue or arms its descriptor, opens or closes an
  // endpoint or changes its address book: one call at a time
  // moves the provider's domain. Its own progress lock covers the whole domain too, so this costs
  // little.
  Mutex& gate() const { return gate_; }
  // Local buffers must be registered for each operation (FI_MR_LOCAL).
  bool local_registration() const { return local_registration_; }
  // Registrations belong to endpoints, and are closed before these (FI_MR_ENDPOINT).
  bool bound_to_endpoints() const { return (mr_mode() & FI_MR_ENDPOINT) != 0; }
  int mr_mode() const { return info_->domain_attr->mr_mode; }

 private:
  explicit OfiFabric(Info info)
      : info_(std::move(info)),
        local_registration_((info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0) {}
  Status start(Opener opener);
  Status probe(bool tried);

  Info info_;
  Fid<fid_fabric> fabric_;  // before the domain: closed after it
  Fid<fid_domain> domain_;
  Traits traits_;
  mutable Connections connections_;  // has a lock of its own
  mutable Mutex gate_ CMI_ACQUIRED_AFTER(lock_order::after_queues)
      CMI_ACQUIRED_BEFORE(lock_order::after_providers);
  const bool local_registration_;
  Mutex mapped_mu_;
  // Raw keys that were mapped, and what to; unmapped with the domain.
  std::map<std::vector<std::byte>, uint64_t> mapped_ CMI_GUARDED_BY(mapped_mu_);
};

}  // namespace cmi::fabric::ofi
