// Segments of large pages at home (CMI_SEG_LARGE_PAGES): their memory is mapped, protected, noted
// as stored to, put in flux and recovered by large pages, whole ones each time. Importers and the
// protocol go on in pages of kPageSize. The file has no name: who attaches asks the owner for it.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/base/cause.hpp"
#include "core/memory/home/home.hpp"
#include "core/node/large_pages.hpp"

namespace cmi::memory {

// What becomes of one large page is told to the same importers: those of its region.
static_assert(kRegionPages * kPageSize % node::kLargePage == 0);

PageRange Home::outward(PageRange pages, size_t page_size) {
  const auto per = static_cast<uint32_t>(page_size / kPageSize);
  const uint32_t first = pages.first / per * per;
  const uint64_t end = uint64_t{pages.first} + pages.count;
  return {first, static_cast<uint32_t>((end + per - 1) / per * per - first)};
}

// Up to the segment's end; what comes to overlap is one range.
std::vector<PageRange> Home::outward(const Segment& s, const std::vector<PageRange>& pages) {
  if (s.page_size() == kPageSize) return pages;
  const auto end = static_cast<uint32_t>(s.size / kPageSize);
  PageSet whole;
  for (const PageRange& r : pages) {
    const PageRange out = outward(r, s.page_size());
    whole.add({out.first, std::min(out.count, end - out.first)});
  }
  return whole.all();
}

Result<Fd> Home::file_of(int32_t id, const Result<node::SegmentInfo>& info, Deadline deadline) {
  if (!info || !access::large_pages(info->flags)) return parts_.node.open_segment_file(id);
  {
    Guard g(mu_);
    // It may be gone again before the caller looks: so it gets a descriptor of its own here too.
    if (const Segment* s = find(id); s != nullptr && s->service) {
      Fd again(fcntl(s->file.get(), F_DUPFD_CLOEXEC, 0));
      if (!again) return Status::kNoMem;
      return again;
    }
  }
  Fd file;
  if (!ask_owner(info->owner, BusFile{kBusFile, id}, -1, deadline, &file)) {
    return because(Status::kReconfig, "the process that made the segment does not answer");
  }
  struct stat st {};
  const uint64_t whole = node::whole_large_pages(info->size);
  const bool whole_file =
      file && ::fstat(file.get(), &st) == 0 && node::is_large_file(file.get()) &&
      (access::extensible(info->flags) ? static_cast<uint64_t>(st.st_size) <= whole
                                       : static_cast<uint64_t>(st.st_size) == whole);
  if (!whole_file) return because(Status::kInval, "the process that made the segment has ended");
  return file;
}

}  // namespace cmi::memory
