// The cache file of an import, and the views of it.
#include "core/memory/importer/import_views.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "core/memory/importer/cache.hpp"
#include "core/memory/importer/local_import.hpp"
#include "core/memory/importer/prefetch.hpp"
#include "core/segment/map_file.hpp"

namespace cmi::memory {

Status ImportViews::prepare(Import& imp, bool reserve) {
  if (imp.write_through) return Status::kOk;
  if (begin_local(core_, imp)) return Status::kOk;
  return make_cache(imp, reserve);
}

Status ImportViews::make_cache(Import& imp, bool reserve) {
  Guard g(imp.token.mu);
  if (imp.cache.ready()) return Status::kOk;
  const size_t size = size_t{imp.pages} * kPageSize;
  // A cache with a limit, of a segment that grows, or of one made with CMI_SEG_NORESERVE takes
  // memory as it goes. A page without any must not be filled: the copy would raise SIGBUS in the
  // handler of that signal, and the kernel would end the process (see back_pages).
  const bool reserved = reserve && !imp.extensible && imp.cache.use.limit() >= imp.pages;
  auto file = core_.parts.node.segments().anonymous_file(size, reserved);
  if (!file) return file.status();
  void* service = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file->get(), 0);
  if (service == MAP_FAILED) return Status::kNoMem;
  Mapping service_map(service, size);
  madvise(service, size, MADV_DONTFORK);
  const size_t table_size = sizeof(Page) * imp.pages;
  // Of what is never cached nothing is touched.
  void* table = mmap(nullptr, table_size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) return Status::kNoMem;
  if (!reserved) imp.cache.use.end_reservation();
  imp.regions.known = ImportRegions(regions_of(imp.pages));
  imp.cache.fill(file.take(), std::move(service_map), Mapping(table, table_size));
  return Status::kOk;
}

std::shared_ptr<const View> ImportViews::enter(const std::shared_ptr<Import>& imp, std::byte* at,
                                               bool read_only) {
  auto view = std::make_shared<View>();
  view->addr = at;
  view->len = size_t{imp->pages} * kPageSize;
  view->read_only = read_only;
  view->write_through = imp->write_through;
  view->segment = imp->id;
  view->import = imp;
  {
    Guard g(imp->views.mu);
    imp->views.list.push_back(view);
  }
  core_.parts.views.insert(view);
  return view;
}

// Mapped from an empty file: an access raises SIGBUS, whatever takes the faults of other views, and
// there is nothing that could be mapped.
Result<std::shared_ptr<const View>> ImportViews::attach_write_through(
    const std::shared_ptr<Import>& imp, void* addr, bool read_only) {
  const size_t size = size_t{imp->pages} * kPageSize;
  const Fd empty(static_cast<int>(syscall(SYS_memfd_create, "cmi-through", 1u)));  // MFD_CLOEXEC
  if (!empty) return Status::kNoMem;
  std::byte* const at =
      segment::map_aligned(empty.get(), addr, size, access::page_size_of(imp->rseg.flags));
  if (at == nullptr) return Status::kNoMem;
  Mapping map(at, size);
  madvise(at, size, MADV_DONTFORK);
  auto view = enter(imp, at, read_only);
  map.release();
  return view;
}

Result<std::shared_ptr<const View>> ImportViews::attach_local(const std::shared_ptr<Import>& imp,
                                                              void* addr, bool read_only) {
  std::byte* const at = imp->views.local.add(addr, read_only);
  if (at == nullptr) return Status::kNoMem;
  return enter(imp, at, read_only);
}

Result<std::shared_ptr<const View>> ImportViews::attach(const std::shared_ptr<Import>& imp,
                                                        void* addr, bool read_only) {
  if (imp->write_through) return attach_write_through(imp, addr, read_only);
  {
    // Where it ceases to be a local one, that finds the view, or has happened.
    Guard g(imp->views.local.join_mu);
    if (imp->views.local.local()) return attach_local(imp, addr, read_only);
  }
  const size_t size = size_t{imp->pages} * kPageSize;
  std::byte* const at =
      segment::map_aligned(imp->cache.file(), addr, size, access::page_size_of(imp->rseg.flags));
  if (at == nullptr) return Status::kNoMem;
  Mapping map(at, size);
  // A child that wrote here would do so untracked, and would fill holes with zeros.
  madvise(at, size, MADV_DONTFORK);
  if (Status s = core_.userfault.add(at, size); !ok(s)) return s;
  zap(at, size);  // under mlockall(MCL_FUTURE) it was mapped whole, before anybody watched
  auto view = enter(imp, at, read_only);
  map.release();
  return view;
}

void ImportViews::detach(const std::shared_ptr<const View>& view, Deadline deadline) {
  core_.parts.views.erase(view);
  {
    Guard g(view->import->views.mu);
    std::erase(view->import->views.list, view);
  }
  // Threads that fault here while the client detaches are its mistake, but must not map pages into
  // what comes to lie at this address next.
  Backoff backoff;
  while (view.use_count() > 1 && !deadline.passed()) backoff.pause();
  view->import->views.local.remove(view->addr);
  munmap(view->addr, view->len);
  if (!view->write_through)
    core_.userfault.wake(view->addr, view->len);  // the end of the mapping does not
}

void ImportViews::set_cache_size(const std::shared_ptr<Import>& imp, size_t bytes) {
  memory::set_cache_size(core_, imp, bytes);
}

void ImportViews::close_all() {
  for (auto& imp : core_.imports.all()) {
    Guard views(imp->views.mu);
    for (auto& v : imp->views.list) zap(v->addr, v->len);
  }
}

void ImportViews::prefetch(const View& view, PageRange pages, Deadline deadline) {
  if (!view.import->write_through) fetch_asked(core_, view, pages, deadline);
}

}  // namespace cmi::memory
