// Who uses a segment, by the verdict of its home: see core/base/holder.hpp. The calling thread is
// registered.
#pragma once

#include "core/context/services.hpp"

namespace cmi::context {

class Holders {
 public:
  explicit Holders(const Services& services) : services_(services) {}

  // The name of this process as a user of the memory at `addr`. kInval: that lies in no view.
  Result<uint64_t> own(const void* addr);
  // Whether nobody uses that memory's segment under this name any more. kReconfig: the home did not
  // say so within `within`; kNotSupp: its version cannot.
  Result<bool> gone(const void* addr, uint64_t holder, Nanos within);

 private:
  const Services& services_;
};

}  // namespace cmi::context
