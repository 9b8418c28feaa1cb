// See info.hpp.
#include "fabric/ofi/info.hpp"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstring>
#include <iterator>
#include <string_view>

#include "core/base/log.hpp"

namespace cmi::fabric::ofi {

namespace {
Info hints_for(const Libfabric& lib, const std::string& provider, uint64_t caps, int mr_mode) {
  Info h(lib.dupinfo(nullptr));
  if (h == nullptr) return h;
  h->caps = caps;
  h->mode = FI_CONTEXT | FI_CONTEXT2;
  h->ep_attr->type = FI_EP_RDM;
  h->domain_attr->threading = FI_THREAD_SAFE;
  h->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  h->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  h->domain_attr->resource_mgmt = FI_RM_ENABLED;
  h->domain_attr->mr_mode = mr_mode;
  h->fabric_attr->prov_name = strdup(provider.c_str());  // freed with the hints
  return h;
}

// What a provider may ask of us, the least first. Offsets and keys of our choosing come before the
// rest: where a provider knows both ways, it is the one in which it checks keys and bounds.
constexpr int kOnesided = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
constexpr int kModes[] = {0, kOnesided, kOnesided | FI_MR_LOCAL | FI_MR_RAW | FI_MR_ENDPOINT};

// From 1.18 on the native tcp does not claim to have atomics any more.
constexpr uint64_t kNeeded = FI_MSG | FI_RMA;

// The first entry whose name is `provider`, or at least contains it: a bare "tcp" also finds
// "tcp;ofi_rxm", and "^x" everything but x.
Info ask(const Libfabric& lib, const std::string& provider, const std::string& address, bool exact,
         uint64_t caps, int mr_mode) {
  const Info hints = hints_for(lib, provider, caps, mr_mode);
  if (hints == nullptr) return nullptr;
  fi_info* list = nullptr;
  const int rc = lib.getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), address.c_str(),
                             nullptr, FI_SOURCE, hints.get(), &list);
  if (rc != 0) {
    trace(kFacIni, kDebug, "provider {}: {}", provider, error_text(rc));
    return nullptr;
  }
  const Info owner(list);
  for (fi_info* i = list; i != nullptr; i = i->next) {
    const std::string_view name = i->fabric_attr->prov_name;
    // libfabric has left out what "^x" excludes.
    const bool any = provider[0] == '^';
    if (!any && (exact ? name != provider : name.find(provider) == std::string::npos)) continue;
    return Info(lib.dupinfo(i));
  }
  return nullptr;
}

// Each question makes every layered provider of libfabric ask again, some of them for all network
// interfaces. So a provider that is not there is asked for once, with all that it may ask of us.
Info query(const Libfabric& lib, const std::string& provider, const std::string& address,
           bool exact) {
  constexpr int kAnyMode = kModes[std::size(kModes) - 1];
  Info least = ask(lib, provider, address, exact, kNeeded, kAnyMode);
  if (least == nullptr) return nullptr;
  for (const int mr_mode : kModes) {
    for (const uint64_t caps : {uint64_t{kNeeded | FI_ATOMIC}, kNeeded}) {
      if (mr_mode == kAnyMode && caps == kNeeded) return least;
      if (Info i = ask(lib, provider, address, exact, caps, mr_mode)) return i;
    }
  }
  return least;
}
}  // namespace

std::vector<Info> candidates(const std::string& provider, const std::string& address,
                             const Libfabric& lib) {
  // Devices that reach remote memory by themselves come first; they show on their own addresses
  // only. The native tcp provider wakes a sleeping peer and makes first contact many times faster
  // than rxm. It is called net up to libfabric 1.17, tcp afterwards; 1.17 has a tcp without RDM
  // endpoints.
  static const std::vector<std::string> kBest{"verbs;ofi_rxm", "tcp", "net", "tcp;ofi_rxm"};
  std::vector<Info> out;
  if (provider.empty() || provider == "tcp") {
    for (const std::string& name : kBest) {
      if (!provider.empty() && name.find("verbs") != std::string::npos) continue;
      if (Info i = query(lib, name, address, true)) out.push_back(std::move(i));
    }
    return out;
  }
  Info i = query(lib, provider, address, true);
  if (i == nullptr) i = query(lib, provider, address, false);
  if (i != nullptr) out.push_back(std::move(i));
  return out;
}

}  // namespace cmi::fabric::ofi
