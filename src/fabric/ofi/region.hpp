// A registration with libfabric. See Region in fabric.hpp. Any thread.
#pragma once

#include "fabric/ofi/domain.hpp"

namespace cmi::fabric::ofi {

// For operations of this side alone, where the provider wants that (FI_MR_LOCAL). Null, with a
// trace line, where it fails.
Fid<fid_mr> register_local(const OfiFabric& fabric, void* addr, size_t len);

class OfiRegion final : public Region {
 public:
  // libfabric's compare-and-swap needs the rights to read and to write and knows no right of its
  // own: kAtomic adds nothing here, and alone it opens nothing.
  static Result<std::unique_ptr<Region>> open(const OfiFabric& fabric, void* addr, size_t len,
                                              uint32_t rights, uint64_t wanted_key);
  RemoteKey key() const override { return key_; }
  Bytes raw_key() const override { return raw_; }

 private:
  OfiRegion(Fid<fid_mr> mr, RemoteKey key, std::vector<std::byte> raw)
      : mr_(std::move(mr)), key_(key), raw_(std::move(raw)) {}
  Fid<fid_mr> mr_;
  RemoteKey key_;
  std::vector<std::byte> raw_;  // empty unless the provider's keys are such
};

}  // namespace cmi::fabric::ofi
