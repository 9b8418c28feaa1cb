// One owner for each libfabric object, closed by its destructor. Any thread that its user allows.
#pragma once

#include <rdma/fabric.h>

#include <memory>

#include "core/base/log.hpp"
#include "fabric/ofi/loader.hpp"

namespace cmi::fabric::ofi {

template <class F>
struct CloseFid {
  void operator()(F* f) const {
    // FI_EBUSY would mean that something opened from it still lives: a bug of ours.
    if (int rc = f->fid.ops->close(&f->fid); rc != 0)
      alert(kFacCtrl, "fabric object not closed: {}", error_text(rc));
  }
};
template <class F>
using Fid = std::unique_ptr<F, CloseFid<F>>;

}  // namespace cmi::fabric::ofi
