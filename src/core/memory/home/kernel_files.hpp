// Files of the kernel's that a home needs, opened once: later there may be no descriptor left.
#pragma once

#include "core/base/fd.hpp"
#include "core/base/status.hpp"

namespace cmi::memory {

struct KernelFiles {
  Fd hole;     // an empty file: an access to a page that is mapped from it gets SIGBUS
  Fd pagemap;  // of this process
  Fd maps;     // segment::open_maps(); one reader at a time gets whole lines (AdoptedViews)

  // kNoMem: there is no descriptor or memory. kNotSupp: /proc is not there or not ours.
  Status open();
};

}  // namespace cmi::memory
