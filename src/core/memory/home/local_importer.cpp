// See local_importer.hpp.
#include "core/memory/home/local_importer.hpp"

namespace cmi::memory {

void LocalImporter::cut_off() {
  if (!control_) return;
  control_.cut_off();
  // Of a process that has ended this does nothing. What is no view any more is not watched.
  for (uint64_t view : views_) watch_.protect_elsewhere(view, size_);
}

PageSet LocalImporter::marked() const {
  PageSet pages;
  if (control_) control_.each_mark([&pages](uint32_t page) { pages.add({page, 1}); });
  return pages;
}

}  // namespace cmi::memory
