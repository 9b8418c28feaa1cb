// Uncorrectable memory errors at home, played. In the process that made the segment: a page of it
// is broken from then on, as MADV_HWPOISON leaves one: whoever touches it gets SIGBUS, in any
// mapping of that process, and system calls that are given it fail with EFAULT.
//
// With CMI_TEST_HWPOISON=1 it is done by MADV_HWPOISON (root; CONFIG_MEMORY_FAILURE), which takes a
// page of the machine's memory away until the machine is started again. Otherwise UFFDIO_POISON
// does the same to the page tables of the process alone (Linux 6.6).
#pragma once

#include <cstdint>

namespace cmi::test {

// Whether this machine has a way to play it; the reason if not, else null.
const char* why_memory_cannot_break();

// In the child. `view`: where the segment is attached. False: it did not work. Played, the page
// breaks for the library of the process that made the segment.
bool break_page(uint64_t view, uint64_t page);
// In the child, of an importer that maps the home's pages at `view`: as if a page were broken that
// it has not touched yet: the kernel gives no memory for it, and says why. False: it did not work.
bool break_mapped_page(uint64_t view, uint64_t page);
// Then in a view as well, of this or of another process of the node: for who touches it there. The
// page of the view is good for nothing else.
bool break_view(uint64_t view, uint64_t page);
// The page is as it was. Of one that MADV_HWPOISON has taken: false.
bool mend_page(uint64_t view, uint64_t page);

}  // namespace cmi::test
