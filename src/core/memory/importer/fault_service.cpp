// Faults of application threads, and what other threads need to serve them.
#include "core/memory/importer/fault_service.hpp"

#include "core/memory/importer/fault.hpp"
#include "core/memory/importer/local_fault.hpp"

namespace cmi::memory {

std::optional<PageSeen> FaultService::snapshot(const View& view, const std::byte* addr,
                                               uint64_t cleaned) const {
  Page& page = view.import->page(page_of(view, addr));
  page.lock();
  const PageSeen seen = page.seen();
  page.unlock();
  // Whatever was done to the page before it was locked here has been counted by now.
  if (cleaned != this->cleaned()) return std::nullopt;
  return seen;
}

[[gnu::hot]] Exception FaultService::serve(const View& view, const std::byte* addr, bool write,
                                           const PageSeen* seen, Deadline deadline) {
  if (view.import->views.local.local()) {
    if (const auto e = LocalFault(core_, view, page_of(view, addr), write, deadline).serve()) {
      return *e;
    }
  }
  return Fault(core_, view, addr, write, seen, deadline).serve();
}

void FaultService::poison(const View& view, const std::byte* addr) {
  const uint32_t index = page_of(view, addr);
  std::byte* const at = view.addr + size_t{index} * kPageSize;
  Page& page = view.import->page(index);
  page.lock();
  zap(at, kPageSize);
  core_.userfault.poison(at, kPageSize);
  page.unlock();
}

void FaultService::unpoison(const View& view, const std::byte* addr) {
  const uint32_t index = page_of(view, addr);
  Page& page = view.import->page(index);
  page.lock();
  zap(view.addr + size_t{index} * kPageSize, kPageSize);
  page.unlock();
}

}  // namespace cmi::memory
