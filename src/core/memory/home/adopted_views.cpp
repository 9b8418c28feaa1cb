#include "core/memory/home/adopted_views.hpp"

#include "core/base/fault_point.hpp"
#include "core/segment/mappings.hpp"

namespace cmi::memory {

namespace {
PageRange pages_of(const segment::Part& part) {
  return {static_cast<uint32_t>(part.begin / kPageSize),
          static_cast<uint32_t>((part.end - part.begin) / kPageSize)};
}
}  // namespace

bool AdoptedViews::look(const Segment& s, HomeView& v) {
  if (v.moving) return true;
  if (fault_point_fails("adopted_unseen")) return false;
  const auto ours = [&] {
    Guard g(maps_mu_);
    if (!segment::maps_readable(files_.maps)) files_.maps = segment::open_maps();
    return segment::still_mapped(
        files_.maps.get(), v.addr, v.len,
        {segment::file_id(s.file.get()), segment::file_id(files_.hole.get())});
  }();
  if (!ours) return false;
  PageSet gone;
  gone.add({0, static_cast<uint32_t>(v.len / kPageSize)});
  for (const auto& part : *ours) gone.remove(pages_of(part));
  for (const PageRange& r : v.gone.missing(gone.all())) {
    v.gone.add(r);
    views_.cut(v.view, v.addr + size_t{r.first} * kPageSize, size_t{r.count} * kPageSize);
  }
  return true;
}

}  // namespace cmi::memory
