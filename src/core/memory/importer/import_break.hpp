// The break of an imported extensible segment, as its home notifies it (rule 24). Before the break
// is acknowledged, pages behind it are in no view, no cache and no message of this process. Service
// thread, but for breaks in the answers to requests of other threads.
#pragma once

#include <vector>

#include "core/memory/importer/importer_core.hpp"
#include "core/memory/wire/notifications.hpp"

namespace cmi::memory {

// The end of a reply about this import, behind all else. False: malformed; *brk is as it was.
bool read_break(const Import& imp, Bytes in, Break* brk);
bool take_break(Import& imp, const Break& brk);  // false: a newer one has come already
// A key that was granted when the break was this one. It may be used unless there is a newer break.
bool key_is_for(Import& imp, const Break& brk, uint32_t generation);
// For the other processes of the node.
void store_break(ImporterCore& core, Import& imp);
// A notification. False: there is nothing to be waited for.
bool on_break(ImporterCore& core, const std::shared_ptr<Import>& owner, const BreakNotification& m,
              PendingAnswer* later);
// The pages that are left from before the last break are gone, also those on their way: the import
// grows to `brk`, which has waited for that, unless there is a newer one.
void grow_to(ImporterCore& core, Import& imp, const Break& brk);
// Whether no store to these pages is under way any more. Takes pages that are done from the end of
// the ranges. All of them lie behind the break.
bool settle_past_break(Import& imp, std::vector<PageRange>* pages);
// An access behind the break that is known here. kSegBrk: the home says so, too; kNone: it does
// not, and the break has moved here by now.
Exception past_break(ImporterCore& core, Import& imp, uint32_t page, Deadline deadline);

}  // namespace cmi::memory
