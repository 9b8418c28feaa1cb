#include "core/memory/page/page_mutations.hpp"

#include "core/base/fault_point.hpp"

namespace cmi::memory::mutation {

void widen(ChangedBits& bits) {
  for (uint64_t& word : bits) word = word != 0 ? ~uint64_t{0} : 0;
}

// Past Page::move(), which would not let them.
void forget_stale(Page& page) {
  if (page.state == PageState::kStale) page.state = PageState::kFetching;
}

bool delivered_by_another(const Page& page) {
  return page.state != PageState::kFetching && page.state != PageState::kStale;
}

void unlock_meanwhile(Page* pages, uint32_t n) {
  for (uint32_t k = 0; k < n; ++k) pages[k].unlock();
  fault_point("mutation_window");
  for (uint32_t k = 0; k < n; ++k) pages[k].lock();
}

void forget_write_back(Page& page) {
  if (page.state == PageState::kZappedWriting) page.state = PageState::kAbsent;
}

}  // namespace cmi::memory::mutation
