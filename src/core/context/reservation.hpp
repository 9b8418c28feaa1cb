// The memory reservation that this context makes its segments in.
#pragma once

#include <cmi.h>

#include <atomic>

#include "core/base/lock.hpp"
#include "core/context/lock_order.hpp"
#include "core/node/node.hpp"

namespace cmi::context {

// Any thread. Its lock lies outside of the node's.
class Reservation {
 public:
  explicit Reservation(node::Node& node) : node_(node) {}

  uint64_t key() const { return key_.load(); }  // 0: there is none
  // Makes the context's reservation, or resizes the one that it has. Sets mem_allocd on failure,
  // too. kNoMem: there is not so much memory; kInval: more than that is in use.
  Status reserve(cmi_cfg_mreq* request);
  // The node's reservation with this key from now on; 0: none. kInval: there is no such one.
  Status use(uint64_t key);
  // kInval: the context has none.
  Status remove();

 private:
  node::Node& node_;
  // Over making, choosing and deleting.
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_lifetime)
      CMI_ACQUIRED_BEFORE(lock_order::after_sizes);
  std::atomic<uint64_t> key_{0};
};

}  // namespace cmi::context
