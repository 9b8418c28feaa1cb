// See region.hpp.
#include "fabric/ofi/region.hpp"

#include "core/base/ids.hpp"
#include "core/base/log.hpp"
#include "fabric/ofi/endpoint.hpp"

namespace cmi::fabric::ofi {

namespace {
uint64_t fitting(uint64_t key, const fi_domain_attr& domain) {
  const size_t bits = 8 * domain.mr_key_size;
  return bits == 0 || bits >= 64 ? key : key & ((uint64_t{1} << bits) - 1);
}

Status failed(size_t len, int rc) {
  trace(kFacTok, kWarn, "registering {} bytes: {}", len, error_text(rc));
  // FI_ENOKEY is a key that is taken.
  const bool exhausted = rc == -FI_ENOMEM || rc == -FI_ENOKEY || rc == -FI_ENOSPC ||
                         rc == -FI_EAGAIN || rc == -FI_EMFILE;
  return exhausted ? Status::kNoMem : Status::kHw;
}
}  // namespace

// One registration for each endpoint: the interface would let it be bound to several, but cxi,
// whose mode this is, binds it to one.
int enable(const OfiFabric& fabric, fid_mr* mr, fid_ep* ep) {
  if (!fabric.bound_to_endpoints()) return 0;
  Guard g(fabric.gate());
  const int rc = fi_mr_bind(mr, &ep->fid, 0);
  return rc != 0 ? rc : fi_mr_enable(mr);
}

Fid<fid_mr> register_local(const OfiFabric& fabric, fid_ep* ep, void* addr, size_t len) {
  fid_mr* mr = nullptr;
  int rc = fi_mr_reg(fabric.domain(), addr, len, FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0,
                     fitting(random_u64(), *fabric.info()->domain_attr), 0, &mr, nullptr);
  Fid<fid_mr> owner(rc == 0 ? mr : nullptr);
  if (rc == 0) rc = enable(fabric, mr, ep);
  if (rc != 0) {
    trace(kFacMem, kWarn, "registering {} bytes of ours: {}", len, error_text(rc));
    return nullptr;
  }
  return owner;
}

Result<std::unique_ptr<Region>> OfiRegion::open(const OfiFabric& fabric, void* addr, size_t len,
                                                uint32_t rights, uint64_t wanted_key,
                                                OfiEndpoint* through) {
  if (fabric.bound_to_endpoints() && through == nullptr) return Status::kInval;
  const fi_domain_attr& domain = *fabric.info()->domain_attr;
  wanted_key = fitting(wanted_key, domain);
  uint64_t access = 0;
  if (rights & kRead) access |= FI_REMOTE_READ;
  if (rights & kWrite) access |= FI_REMOTE_WRITE;
  if (access == 0) access = FI_SEND;  // a registration that peers can do nothing with
  fid_mr* mr = nullptr;
  int rc = fi_mr_reg(fabric.domain(), addr, len, access, 0, wanted_key, 0, &mr, nullptr);
  if (rc != 0) return failed(len, rc);
  Fid<fid_mr> owner(mr);
  if (fabric.bound_to_endpoints()) {
    if (rc = enable(fabric, mr, through->ep()); rc != 0) return failed(len, rc);
  }
  RemoteKey key;  // a provider that chooses it may do so when it is enabled
  key.key = fi_mr_key(mr);
  if (domain.mr_mode & FI_MR_VIRT_ADDR) key.base = reinterpret_cast<uint64_t>(addr);
  std::vector<std::byte> raw;
  if (domain.mr_mode & FI_MR_RAW) {
    raw.resize(kMaxRawKey);
    size_t size = raw.size();
    uint64_t base = 0;
    rc = fi_mr_raw_attr(mr, &base, reinterpret_cast<uint8_t*>(raw.data()), &size, 0);
    if (rc != 0 || size > raw.size()) {
      trace(kFacTok, kWarn, "a raw key of {} bytes: {}", size, error_text(rc));
      return Status::kNotSupp;
    }
    raw.resize(size);
    // In tokens: it tells nobody anything, the raw key is what opens.
    key = {0, base};
  }
  auto registration = std::make_shared<Registration>(std::move(owner));
  if (fabric.bound_to_endpoints()) through->bind(registration);
  return std::unique_ptr<Region>(new OfiRegion(std::move(registration), key, std::move(raw)));
}

}  // namespace cmi::fabric::ofi
