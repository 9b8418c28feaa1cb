// CMI_SEG_CHECK and CMI_SEG_RECO: which pages of a segment are in flux, and giving them back.
// Threads: any; recover() waits for importers.
#pragma once

#include "core/memory/home/home_core.hpp"

namespace cmi::memory {

inline constexpr size_t kMaxRecovery = size_t{1} << 30;  // bytes of one CHECK or RECO

class Recovery {
 public:
  explicit Recovery(HomeCore& home) : home_(home) {}
  // kPerm: not the process that made the segment. kInval: [addr, addr+size) is no range of whole
  // pages of one of its views, or too long. *addr, *size become the lowest range that needs
  // recovery; size 0: none does.
  Status check_in_flux(int32_t id, std::byte** addr, size_t* size);
  Status recover(int32_t id, std::byte* addr, size_t size, Deadline deadline);
  bool any_in_flux(int32_t id);                           // as far as this process knows
  bool in_flux(int32_t id, size_t offset);                // the same of one page
  bool in_flux(const View& view, const std::byte* addr);  // fault handler
  // How often pages were uncovered: a fault on a page that is not in flux may have met its cover.
  uint64_t uncovered() const { return home_.covers.uncovered(); }

 private:
  // Under the segment's `views_mu`; null: there is none.
  static Status recovery_range(Segment* s, const std::byte* addr, size_t size, HomeView** view,
                               PageRange* pages);

  HomeCore& home_;
};

}  // namespace cmi::memory
