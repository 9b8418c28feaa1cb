#include "core/api/names.hpp"

#include <cmi.h>

namespace cmi::api {

const char* command_name(int32_t command) {
  switch (command) {
#define CMI_NAME(name) \
  case name:           \
    return #name;
    CMI_NAME(CMI_SEG_RM)
    CMI_NAME(CMI_SEG_TOKEN)
    CMI_NAME(CMI_SEG_STATUS)
    CMI_NAME(CMI_SEG_CHECK)
    CMI_NAME(CMI_SEG_RECO)
    CMI_NAME(CMI_SEG_BRK)
    CMI_NAME(CMI_SEG_INFO)
    CMI_NAME(CMI_CTL_INFO)
    CMI_NAME(CMI_CTL_CACHE_RSEG_SET)
    CMI_NAME(CMI_CTL_CACHE_RSEG_GET)
    CMI_NAME(CMI_CTL_RECONF_TOUT)
    CMI_NAME(CMI_CTL_CLIENT_CONSIST)
    CMI_NAME(CMI_CTL_NODE_CMAP_GET)
    CMI_NAME(CMI_CTL_MEM_RESERVE)
    CMI_NAME(CMI_CTL_MEM_RESERVE_DEL)
    CMI_NAME(CMI_CTL_MEM_RESERVE_SET)
    CMI_NAME(CMI_CTL_NODE_ADDR_CMP)
    CMI_NAME(CMI_ATTR_RSEG_SIZE)
    CMI_NAME(CMI_ATTR_TOKEN_SIZE)
    CMI_NAME(CMI_ATTR_NODEADDR_SIZE)
#undef CMI_NAME
    default:
      return "unknown";
  }
}

}  // namespace cmi::api
