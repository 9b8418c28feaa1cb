// A registration with libfabric. See Region in fabric.hpp. Any thread.
#pragma once

#include "fabric/ofi/domain.hpp"

namespace cmi::fabric::ofi {

class OfiRegion final : public Region {
 public:
  // libfabric's compare-and-swap needs the rights to read and to write and knows no right of its
  // own: kAtomic adds nothing here, and alone it opens nothing.
  static Result<std::unique_ptr<Region>> open(const OfiFabric& fabric, void* addr, size_t len,
                                              uint32_t rights, uint64_t wanted_key);
  RemoteKey key() const override { return key_; }

 private:
  OfiRegion(Fid<fid_mr> mr, RemoteKey key) : mr_(std::move(mr)), key_(key) {}
  Fid<fid_mr> mr_;
  RemoteKey key_;
};

}  // namespace cmi::fabric::ofi
