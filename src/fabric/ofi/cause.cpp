// See cause.hpp. The numbers were observed with libfabric 1.17.
#include "fabric/ofi/cause.hpp"

#include <rdma/fi_errno.h>

#include "core/base/log.hpp"
#include "fabric/ofi/loader.hpp"

namespace cmi::fabric::ofi {

Cause cause_of(int err) {
  switch (err) {
    case FI_EACCES:  // rxm: atomic against a bad key; sockets: anything against one
    case FI_EPERM:
    case FI_ENOKEY:
    case FI_EKEYREJECTED:
      return Cause::kRefused;
    // verbs: whatever a work request ends with, "remote access error" or an acknowledgement that
    // never came. What was asked for may have been done.
    case FI_EIO:
    case FI_ECANCELED:  // net, rxm: the connection fell while this was in flight
    case FI_ENOTCONN:   // rxm: between disconnect and reconnect
    case FI_ECONNRESET:
    case FI_ECONNABORTED:
    case FI_ECONNREFUSED:
    case FI_ESHUTDOWN:
    case FI_EHOSTUNREACH:
    case FI_ENETUNREACH:
    case FI_EHOSTDOWN:
    case FI_ETIMEDOUT:
    case EPIPE:
      return Cause::kPeerLost;
    default:
      return Cause::kLocal;
  }
}

bool ends_connection(int err) { return cause_of(err) == Cause::kPeerLost; }

[[gnu::hot]] Post post_of(long result) {
  switch (-result) {
    case 0:
      return Post::kPosted;
    case FI_EAGAIN:
    case FI_ENOTCONN:
    case FI_ECONNREFUSED:
    case FI_ECONNRESET:
    case FI_ECONNABORTED:
      return Post::kAgain;
    default:
      trace(kFacMem, kDebug, "operation not accepted: {}", error_text(static_cast<int>(result)));
      return Post::kFailed;
  }
}

Status failed(const char* what, int rc) {
  trace(kFacCtrl, kWarn, "endpoint: {}: {}", what, error_text(rc));
  return rc == -FI_ENOMEM || rc == -FI_EMFILE || rc == -FI_ENOSPC ? Status::kNoMem : Status::kHw;
}

}  // namespace cmi::fabric::ofi
