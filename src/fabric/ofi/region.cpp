// See region.hpp.
#include "fabric/ofi/region.hpp"

#include "core/base/log.hpp"

namespace cmi::fabric::ofi {

Result<std::unique_ptr<Region>> OfiRegion::open(const OfiFabric& fabric, void* addr, size_t len,
                                                uint32_t rights, uint64_t wanted_key) {
  const fi_domain_attr& domain = *fabric.info()->domain_attr;
  if (domain.mr_key_size < sizeof wanted_key)
    wanted_key &= (uint64_t{1} << (8 * domain.mr_key_size)) - 1;
  uint64_t access = 0;
  if (rights & kRead) access |= FI_REMOTE_READ;
  if (rights & kWrite) access |= FI_REMOTE_WRITE;
  if (access == 0) access = FI_SEND;  // a registration that peers can do nothing with
  fid_mr* mr = nullptr;
  int rc = fi_mr_reg(fabric.domain(), addr, len, access, 0, wanted_key, 0, &mr, nullptr);
  if (rc != 0) {
    trace(kFacTok, kWarn, "registering {} bytes: {}", len, error_text(rc));
    // FI_ENOKEY is a key that is taken.
    const bool exhausted = rc == -FI_ENOMEM || rc == -FI_ENOKEY || rc == -FI_ENOSPC ||
                           rc == -FI_EAGAIN || rc == -FI_EMFILE;
    return exhausted ? Status::kNoMem : Status::kHw;
  }
  Fid<fid_mr> owner(mr);
  RemoteKey key;
  key.key = fi_mr_key(mr);
  if (key.key == FI_KEY_NOTAVAIL) {
    // A raw key: longer than the 64 bits that tokens carry. No provider that we ask for has one.
    trace(kFacTok, kError, "the provider's keys do not fit 64 bits");
    return Status::kNotSupp;
  }
  if (domain.mr_mode & FI_MR_VIRT_ADDR) key.base = reinterpret_cast<uint64_t>(addr);
  return std::unique_ptr<Region>(new OfiRegion(std::move(owner), key));
}

}  // namespace cmi::fabric::ofi
