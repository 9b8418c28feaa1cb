#include "core/api/compare_nodes.hpp"

#include <algorithm>
#include <vector>

#include "core/access/handles.hpp"
#include "core/base/cause.hpp"

namespace cmi::api {

namespace {

Result<NodeId> node_of(const cmi_naddr* address) {
  if (address == nullptr || address == CMI_NADDR_ANY) {
    return because(Status::kInval, "an address is null or stands for any");
  }
  auto info = access::decode_naddr(address);
  if (!info) return because(info.status(), "an address is malformed");
  return info->node;
}

}  // namespace

Status compare_nodes(cmi_ctl_cfg* cfg) {
  const cmi_cfg_ncmp asked = cfg->ncmp;
  if (asked.ncmp_addrs > 0 && (asked.ncmp_caddr == nullptr || asked.ncmp_midx == nullptr)) {
    return because(Status::kInval, "an array is null");
  }
  const auto wanted = node_of(asked.ncmp_naddr);
  if (!wanted) return wanted.status();
  std::vector<uint32_t> matches;
  for (uint32_t i = 0; i < asked.ncmp_addrs; ++i) {
    const auto node = node_of(asked.ncmp_caddr[i]);
    if (!node) return node.status();
    if (*node == *wanted) matches.push_back(i);
  }
  std::copy(matches.begin(), matches.end(), asked.ncmp_midx);
  cfg->ncmp.ncmp_addrs = static_cast<uint32_t>(matches.size());
  return Status::kOk;
}

}  // namespace cmi::api
