// The break of an imported extensible segment, as its home tells it (rule 24): pages behind it are
// in no view, no cache and no message of ours when the home hears that we know. Service thread, but
// for what the answers to our own requests say of it.
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
// Nothing of before is left or under way: up to the break that was waiting for that, unless there
// is a newer one.
void grow_to(ImporterCore& core, Import& imp, const Break& brk);
// Whether nothing that was stored to these pages is under way any more; takes those that are done
// from the range's end. They lie behind the break until then.
bool settle_past_break(Import& imp, std::vector<PageRange>* pages);
// An access behind the break that is known here. kSegBrk: the home says so, too; kNone: it does
// not, and the break has moved here by now.
Exception past_break(ImporterCore& core, Import& imp, uint32_t page, Deadline deadline);

}  // namespace cmi::memory
