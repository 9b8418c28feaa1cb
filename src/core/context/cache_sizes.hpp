// How large the client wants the caches of imported segments: CMI_CTL_CACHE_RSEG_SET and
// CMI_CTL_CACHE_RSEG_GET.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/base/lock.hpp"
#include "core/context/chosen_sizes.hpp"
#include "core/context/imported_segments.hpp"
#include "core/context/lock_order.hpp"
#include "core/context/services.hpp"

namespace cmi::context {

// Any thread. Its lock lies outside of that of ImportedSegments.
class CacheSizes {
 public:
  CacheSizes(const Services& services, ImportedSegments& imports)
      : services_(services), imports_(imports) {}

  // Of one segment, or of all that there are and will be (CMI_SEG_ALL). kInval: 0 bytes, or no such
  // segment; kPerm: another process made or imported it; kNoMem: a larger cache is more than may
  // count against mem_max, and that import keeps its size.
  Status set(int32_t seg, size_t bytes);
  // In bytes; the segment's size where there is no limit.
  Result<size_t> get(int32_t seg);
  // To a new import, which must be among the imports already, so that a size set for all from now
  // on reaches it.
  void start(const std::shared_ptr<memory::Import>& import);
  size_t of_new();           // bytes of an import to come; 0: nothing was said
  void forget(int32_t seg);  // a segment at home that was removed

 private:
  Status apply(const std::shared_ptr<memory::Import>& import, size_t bytes);

  const Services& services_;
  ImportedSegments& imports_;
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_lifetime)
      CMI_ACQUIRED_BEFORE(lock_order::after_sizes);
  ChosenSizes chosen_ CMI_GUARDED_BY(mu_);
};

}  // namespace cmi::context
