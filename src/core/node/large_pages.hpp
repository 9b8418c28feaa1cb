// Files of large pages (CMI_SEG_LARGE_PAGES): memory from the kernel's pool of 2 MiB pages. Such a
// file has no name, because a named one would ask for a mounted hugetlbfs: its maker passes the
// descriptor on, and the file goes with the last mapping and descriptor, however their processes
// end. Any thread, but not the fault handler.
#pragma once

#include <cstdint>

#include "core/base/fd.hpp"
#include "core/base/status.hpp"

namespace cmi::node {

inline constexpr uint64_t kLargePage = uint64_t{2} << 20;

constexpr uint64_t whole_large_pages(uint64_t bytes) {
  return (bytes + kLargePage - 1) / kLargePage * kLargePage;
}

// Empty. kNotSupp: this kernel has no such pages; whether any are free shows when they are
// allocated.
Result<Fd> make_large_file();

bool is_large_file(int fd);

}  // namespace cmi::node
