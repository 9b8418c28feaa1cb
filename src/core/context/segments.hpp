// Segments as clients see them: making, attaching, detaching, removing, asking.
#pragma once

#include <cmi.h>

#include <atomic>
#include <memory>

#include "core/context/attached_views.hpp"
#include "core/context/cache_sizes.hpp"
#include "core/context/imported_segments.hpp"
#include "core/context/reservation.hpp"
#include "core/context/services.hpp"

namespace cmi::context {

inline constexpr size_t kMaxSegmentSize = size_t{1} << 43;  // 2^31 pages

// Any thread; each call is that of the interface with its name, and fails as cmi.h says.
class Segments {
 public:
  Segments(const Services& services, ImportedSegments& imports, CacheSizes& cache_sizes,
           Reservation& reservation)
      : services_(services),
        imports_(imports),
        cache_sizes_(cache_sizes),
        reservation_(reservation) {}

  Result<int32_t> make(size_t size, int32_t flags);                     // seg_get
  Result<int32_t> make_in_place(void* va, size_t size, int32_t flags);  // seg_getva
  void assume_client_consistent() { client_consistent_.store(true); }   // of later make()

  // attaching.cpp
  Result<void*> attach(int32_t seg, void* addr, int32_t flags);
  Status detach(int32_t seg, void* addr);
  std::byte* lowest_view(int32_t seg) { return attached_.lowest(seg); }  // null: it has none
  // Ends all views, at the end of the context.
  void detach_all(Deadline deadline);

  Status remove(int32_t seg);
  Status status(int32_t seg, cmi_ds* ds);
  Status check(int32_t seg, cmi_ds* ds);
  Status recover(int32_t seg, const cmi_ds& ds);
  Status info(int32_t seg, cmi_ds* ds);
  Status set_break(int32_t seg, size_t to);
  Status attribute(int32_t seg, int32_t cmd, size_t* size);

 private:
  Result<std::shared_ptr<memory::Import>> import_of(int32_t seg);
  Status attach_home(const node::SegmentInfo& info, void** at, bool read_only);
  Status attach_import(const node::SegmentInfo& info, void** at, bool read_only,
                       AttachedView* entry);
  void leave_import_if_unused(int32_t seg);

  const Services& services_;
  ImportedSegments& imports_;
  CacheSizes& cache_sizes_;
  Reservation& reservation_;
  AttachedViews attached_;
  std::atomic<bool> client_consistent_{false};
};

}  // namespace cmi::context
