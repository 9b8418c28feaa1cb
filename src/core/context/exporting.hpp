// Handles and tokens as clients hold them: exporting, importing, granting, revoking.
#pragma once

#include <cmi.h>

#include "core/access/handles.hpp"
#include "core/context/cache_sizes.hpp"
#include "core/context/imported_segments.hpp"
#include "core/context/issued_objects.hpp"
#include "core/context/services.hpp"

namespace cmi::context {

// Any thread; each call is that of the interface with its name, and fails as cmi.h says. A call
// that reads an object of the client's blocks signals itself, once it has read it.
class Sharing {
 public:
  Sharing(const Services& services, ImportedSegments& imports, CacheSizes& cache_sizes)
      : services_(services),
        imports_(imports),
        cache_sizes_(cache_sizes),
        issued_(services.allocator) {}

  Result<cmi_rseg*> export_segment(int32_t seg, int32_t attrib);
  Status delete_handle(const cmi_rseg* rseg);
  Result<int32_t> import_segment(const cmi_rseg* rseg);
  Status set_token(int32_t seg, const cmi_token* token);
  Result<cmi_token*> new_token(int32_t seg, const cmi_naddr* naddr, uint32_t rights) {
    return make_token(seg, nullptr, naddr, rights);
  }
  Result<cmi_token*> new_token_of_part(int32_t seg, const void* va, size_t size,
                                       const cmi_naddr* naddr, uint32_t rights);
  Status delete_token(const cmi_token* token);

 private:
  // `part`: null for the whole segment.
  Result<cmi_token*> make_token(int32_t seg, const access::TokenPart* part, const cmi_naddr* naddr,
                                uint32_t rights);
  size_t cache_for(size_t segment);

  const Services& services_;
  ImportedSegments& imports_;
  CacheSizes& cache_sizes_;
  IssuedObjects issued_;
};

}  // namespace cmi::context
