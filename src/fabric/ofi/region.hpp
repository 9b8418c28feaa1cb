// A registration with libfabric. See Region in fabric.hpp. Any thread.
#pragma once

#include "core/base/lock.hpp"
#include "fabric/lock_order.hpp"
#include "fabric/ofi/domain.hpp"

namespace cmi::fabric::ofi {

class OfiEndpoint;

// Binds a registration to the endpoint that it is for and enables it, where the provider wants that
// (FI_MR_ENDPOINT); without effect elsewhere. 0, or libfabric's error.
int enable(const OfiFabric& fabric, fid_mr* mr, fid_ep* ep);

// For operations of this side alone, and of the endpoint alone, where the provider wants that
// (FI_MR_LOCAL). Null, with a trace line, where it fails.
Fid<fid_mr> register_local(const OfiFabric& fabric, fid_ep* ep, void* addr, size_t len);

// What a region and, where it is bound to one, its endpoint hold. The first of the two to end
// closes it.
class Registration {
 public:
  explicit Registration(Fid<fid_mr> mr) : mr_(std::move(mr)) {}
  void close() CMI_EXCLUDES(mu_) {
    Guard g(mu_);
    mr_.reset();
  }

 private:
  // Over closing: neither the region nor the endpoint is gone before it is closed.
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_bound);
  Fid<fid_mr> mr_ CMI_GUARDED_BY(mu_);
};

class OfiRegion final : public Region {
 public:
  // libfabric's compare-and-swap needs the rights to read and to write and knows no right of its
  // own: kAtomic adds nothing here, and alone it opens nothing.
  static Result<std::unique_ptr<Region>> open(const OfiFabric& fabric, void* addr, size_t len,
                                              uint32_t rights, uint64_t wanted_key,
                                              OfiEndpoint* through);
  ~OfiRegion() override { registration_->close(); }
  RemoteKey key() const override { return key_; }
  Bytes raw_key() const override { return raw_; }

 private:
  OfiRegion(std::shared_ptr<Registration> r, RemoteKey key, std::vector<std::byte> raw)
      : registration_(std::move(r)), key_(key), raw_(std::move(raw)) {}
  const std::shared_ptr<Registration> registration_;
  const RemoteKey key_;
  const std::vector<std::byte> raw_;  // empty unless the provider's keys are such
};

}  // namespace cmi::fabric::ofi
