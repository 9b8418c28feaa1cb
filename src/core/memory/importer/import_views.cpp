// The cache file of an import, and the views of it.
#include <sys/mman.h>

#include <utility>

#include "core/memory/importer/importer.hpp"
#include "core/segment/map_file.hpp"

namespace cmi::memory {

void Importer::poison(const View& view, const std::byte* addr) {
  const size_t index = static_cast<size_t>(addr - view.addr) / kPageSize;
  std::byte* const at = view.addr + index * kPageSize;
  Page& page = view.import->page(index);
  page.lock();
  zap(at, kPageSize);
  userfault_.poison(at, kPageSize);
  page.unlock();
}

void Importer::unpoison(const View& view, const std::byte* addr) {
  const size_t index = static_cast<size_t>(addr - view.addr) / kPageSize;
  Page& page = view.import->page(index);
  page.lock();
  zap(view.addr + index * kPageSize, kPageSize);
  page.unlock();
}

Status Importer::prepare(Import& imp, bool reserve) {
  if (imp.write_through) return Status::kOk;
  Guard g(imp.token.mu);
  if (imp.cache.ready()) return Status::kOk;
  const size_t size = size_t{imp.pages} * kPageSize;
  // A cache with a limit, or of a segment that grows, takes memory as it goes (see back_pages).
  const bool limited = imp.extensible || imp.cache.use.limit() < imp.pages;
  auto file = parts_.node.anonymous_file(size, reserve && !limited);
  if (!file) return file.status();
  void* service = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0);
  if (service == MAP_FAILED) return Status::kNoMem;
  Mapping service_map(service, size);
  madvise(service, size, MADV_DONTFORK);
  const size_t table_size = sizeof(Page) * imp.pages;
  void* table =
      mmap(nullptr, table_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (table == MAP_FAILED) return Status::kNoMem;
  if (limited) imp.cache.use.end_reservation();
  imp.regions.known = ImportRegions(regions_of(imp.pages));
  imp.cache.fill(file.take(), std::move(service_map), Mapping(table, table_size));
  return Status::kOk;
}

Result<std::shared_ptr<const View>> Importer::attach(const std::shared_ptr<Import>& imp, void* addr,
                                                     bool read_only) {
  if (imp->write_through) return attach_write_through(imp, addr, read_only);
  const size_t size = size_t{imp->pages} * kPageSize;
  std::byte* const at =
      segment::map_aligned(imp->cache.file(), addr, size, access::page_size_of(imp->rseg.flags));
  if (at == nullptr) return Status::kNoMem;
  Mapping map(at, size);
  // A child that wrote here would do so untracked, and would fill holes with zeros.
  madvise(at, size, MADV_DONTFORK);
  if (Status s = userfault_.add(at, size); !ok(s)) return s;
  zap(at, size);  // under mlockall(MCL_FUTURE) it was mapped whole, before anybody watched
  auto view = std::make_shared<View>();
  view->addr = at;
  view->len = size;
  view->read_only = read_only;
  view->segment = imp->id;
  view->import = imp;
  {
    Guard g(imp->views.mu);
    imp->views.list.push_back(view);
  }
  parts_.views.insert(view);
  map.release();
  return std::shared_ptr<const View>(view);
}

void Importer::detach(const std::shared_ptr<const View>& view, Deadline deadline) {
  parts_.views.erase(view);
  {
    Guard g(view->import->views.mu);
    std::erase(view->import->views.list, view);
  }
  // Threads that fault here while the client detaches are its mistake, but must not map pages into
  // what comes to lie at this address next.
  Backoff backoff;
  while (view.use_count() > 1 && !deadline.passed()) backoff.pause();
  munmap(view->addr, view->len);
  if (!view->write_through)
    userfault_.wake(view->addr, view->len);  // the end of the mapping does not
}

}  // namespace cmi::memory
