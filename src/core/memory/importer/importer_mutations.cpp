#include "core/memory/importer/importer_mutations.hpp"

#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/memory/importer/import.hpp"
#include "core/memory/vm/userfault.hpp"
#include "core/memory/vm/view_table.hpp"

namespace cmi::memory::mutation {

void read_again(const Import& imp, Bytes diffs) {
  for (Reader in(diffs); in.left() > 0;) {
    const std::byte* page = imp.page_data(in.get<uint32_t>());
    in.get<uint8_t>();  // epoch of its dirty intent
    for (auto runs = in.get<uint16_t>(); runs > 0; --runs) {
      const size_t start = in.get<uint16_t>();
      const Bytes bytes = in.blob();
      std::memcpy(const_cast<std::byte*>(bytes.data()), page + start, bytes.size());
    }
  }
}

void renew_from_page(std::byte* twin, const std::byte* page) {
  fault_point("mutation_window");
  std::memcpy(twin, page, kPageSize);
}

void open_without_twin(Userfault& userfault, const View& view, uint32_t page) {
  userfault.unprotect(view.addr + size_t{page} * kPageSize, kPageSize);
  fault_point("mutation_window");
}

void show_unchecked(Userfault& userfault, const View& view, PageRange pages) {
  std::byte* const at = view.addr + size_t{pages.first} * kPageSize;
  const size_t len = size_t{pages.count} * kPageSize;
  userfault.map(at, len, false);
  fault_point("mutation_window");
  zap(at, len);
}

}  // namespace cmi::memory::mutation
