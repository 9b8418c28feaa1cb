// Cached pages that are taken out of use: by notifications that others have stored to them, or that
// they are in flux, and by the end of a token, an import or a part of a segment. Any thread; never
// waits.
#pragma once

#include <vector>

#include "core/base/codec.hpp"
#include "core/memory/importer/importer_core.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

// One invalidation: what its acknowledgement says, and what it has found.
struct Invalidation {
  Writer released;         // ReleasedRegions
  bool to_home = false;    // the acknowledgement goes to the home in any case
  bool few_pages = false;  // it names so few that they may be released one by one (rule 28)
  bool found = false;      // some page was cached or being fetched
};

// Region by region: one that has nothing cached is released instead (rule 10).
void drop(ImporterCore& core, const std::shared_ptr<Import>& imp, PageRange range,
          Invalidation* by);
// Dirty pages are written back (rule 9).
void invalidate(ImporterCore& core, const std::shared_ptr<Import>& owner, PageRange range,
                Invalidation* by = nullptr);
// Takes pages out of use: those with stores that were not home yet go into *lost, the dirty intents
// that the home has of them into *intents.
void drop_pages(ImporterCore& core, Import& imp, PageRange range, std::vector<uint32_t>* lost,
                std::vector<DirtyIntent>* intents);
// Takes every page out of use; what was not home yet is lost.
void drop_all(ImporterCore& core, const std::shared_ptr<Import>& owner);

}  // namespace cmi::memory
