// The end of imports: of a token, of a segment, of a home; and what a home asks of the peace on a
// segment. Any thread; nothing here waits.
#pragma once

#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

// `token`: for kRevoked, the token that ends. False: the import has another token by now.
bool end_import(ImporterCore& core, const std::shared_ptr<Import>& imp, ImportState state,
                uint64_t token = 0);
// The home is dead or has ended: its link is condemned, its segments are gone.
void lose_home(ImporterCore& core, const std::shared_ptr<fabric::Link>& link);
// It is in no list any more, and none of its pages in use.
void forget(ImporterCore& core, const std::shared_ptr<Import>& imp);

// Service thread.
void on_quiesce(ImporterCore& core, const std::shared_ptr<Import>& imp, bool on, uint32_t round);
// No resume will come. The segment raises exceptions from now on, also in views attached later. The
// caller settles the marks.
void end_quiesce(ImporterCore& core, Import& imp);

}  // namespace cmi::memory
