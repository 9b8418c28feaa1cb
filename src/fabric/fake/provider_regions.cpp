// Registrations of the played provider, and the raw keys of those of others.
#include <sys/mman.h>

#include <cstring>

#include "core/base/ids.hpp"
#include "fabric/fake/provider_objects.hpp"

namespace cmi::fabric::fake {

FakeMr::~FakeMr() {
  {
    Guard g(domain->mu);
    domain->live.erase(this);
    if (domain->provider->modes.keeps_closed_keys && region != nullptr)
      domain->kept.push_back(std::move(region));
  }
  if (!raw.empty()) {
    Guard g(domain->provider->mu);
    domain->provider->raw_keys.erase(raw);
  }
}

namespace {

// From here on it opens something. A provider that chooses keys may do so now.
int enable_mr(FakeMr& mr) {
  FakeDomain& domain = *mr.domain;
  if (mr.enabled || (domain.wants(FI_MR_ENDPOINT) && mr.bound == nullptr)) return -FI_EINVAL;
  if (mr.rights != 0 || !domain.wants(FI_MR_LOCAL)) {
    Endpoint* through = mr.bound == nullptr ? nullptr : mr.bound->endpoint.get();
    auto region = domain.node->register_memory(const_cast<std::byte*>(mr.data), mr.len, mr.rights,
                                               mr.key, through);
    if (!region) return -FI_ENOKEY;
    mr.region = region.take();
  }
  mr.fid.key = mr.raw.empty() ? mr.key : FI_KEY_NOTAVAIL;
  if (!mr.raw.empty()) {
    Guard g(domain.provider->mu);
    domain.provider->raw_keys[mr.raw] = mr.key;
  }
  Guard g(domain.mu);
  mr.enabled = true;
  return 0;
}

// To one endpoint, once, which is up: as cxi does.
int mr_bind(fid* f, fid* other, uint64_t flags) {
  auto& mr = object<FakeMr>(f);
  if (!mr.domain->wants(FI_MR_ENDPOINT)) return -FI_ENOSYS;
  if (flags != 0) return -FI_EBADFLAGS;
  if (other->fclass != FI_CLASS_EP || mr.bound != nullptr) return -FI_EINVAL;
  FakeEp& ep = ep_of(reinterpret_cast<fid_ep*>(other));
  if (ep.domain != mr.domain || !ep.enabled) return -FI_EINVAL;
  Guard g(mr.domain->mu);
  mr.bound = &ep;
  return 0;
}

int mr_control(fid* f, int command, void* arg) {
  auto& mr = object<FakeMr>(f);
  if (command == FI_ENABLE) return enable_mr(mr);
  if (command != FI_GET_RAW_MR || mr.raw.empty()) return -FI_ENOSYS;
  auto* attr = static_cast<struct fi_mr_raw_attr*>(arg);
  if (*attr->key_size < mr.raw.size()) return -FI_ETOOSMALL;
  std::memcpy(attr->raw_key, mr.raw.data(), mr.raw.size());
  *attr->key_size = mr.raw.size();
  *attr->base_addr = mr.domain->wants(FI_MR_VIRT_ADDR) ? reinterpret_cast<uint64_t>(mr.data) : 0;
  return 0;
}

// All of it: mincore() fails where something is not. (A mapped page need not be in memory yet:
// pinning brings it in.)
bool is_mapped(const void* buffer, size_t len) {
  const auto from = reinterpret_cast<uintptr_t>(buffer) / kPageSize * kPageSize;
  const size_t whole = reinterpret_cast<uintptr_t>(buffer) + len - from;
  std::vector<unsigned char> resident((whole + kPageSize - 1) / kPageSize);
  return mincore(reinterpret_cast<void*>(from), whole, resident.data()) == 0;
}

}  // namespace

int register_mr(fid* f, const void* buffer, size_t len, uint64_t access, uint64_t,
                uint64_t requested, uint64_t, fid_mr** out, void*) {
  static fi_ops ops = closing_ops<FakeMr>(mr_control, mr_bind);
  auto& domain = object<FakeDomain>(f);
  const ProviderModes& modes = domain.provider->modes;
  if (domain.wants(FI_MR_ALLOCATED) && !is_mapped(buffer, len)) return -FI_EFAULT;
  const size_t bits = 8 * std::min<size_t>(modes.key_size, 8);
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  auto mr = std::make_unique<FakeMr>();
  mr->domain = &domain;
  mr->data = static_cast<const std::byte*>(buffer);
  mr->len = len;
  mr->key = requested;
  if (domain.wants(FI_MR_PROV_KEY | FI_MR_RAW)) {
    mr->key = random_u64() & mask;
  } else if ((mr->key & ~mask) != 0) {
    return -FI_EKEYREJECTED;
  }
  if (access & FI_REMOTE_READ) mr->rights |= kRead;
  if (access & FI_REMOTE_WRITE) mr->rights |= kWrite;
  mr->fid.fid.fclass = FI_CLASS_MR;
  mr->fid.fid.ops = &ops;
  mr->fid.mem_desc = mr.get();
  mr->fid.key = FI_KEY_NOTAVAIL;
  if (domain.wants(FI_MR_RAW)) {
    mr->raw.resize(modes.key_size);
    for (size_t i = 0; i < mr->raw.size(); i += 8) {
      const uint64_t r = random_u64();
      std::memcpy(mr->raw.data() + i, &r, std::min<size_t>(8, mr->raw.size() - i));
    }
  }
  if (!domain.wants(FI_MR_ENDPOINT)) {
    if (const int rc = enable_mr(*mr); rc != 0) return rc;
  }
  Guard g(domain.mu);
  domain.live.insert(mr.get());
  *out = &mr.release()->fid;
  return 0;
}

int domain_control(fid* f, int command, void* arg) {
  auto& domain = object<FakeDomain>(f);
  if (command == FI_UNMAP_KEY) {
    Guard g(domain.mu);
    return domain.mapped.erase(*static_cast<uint64_t*>(arg)) == 1 ? 0 : -FI_EINVAL;
  }
  if (command != FI_MAP_RAW_MR) return -FI_ENOSYS;
  auto* map = static_cast<struct fi_mr_map_raw*>(arg);
  const uint64_t key = domain.provider->resolve({map->raw_key, map->raw_key + map->key_size});
  Guard g(domain.mu);
  *map->key = ++domain.last_mapped;
  domain.mapped[*map->key] = key;  // one that stands for nothing is refused when it is used
  return 0;
}

}  // namespace cmi::fabric::fake
