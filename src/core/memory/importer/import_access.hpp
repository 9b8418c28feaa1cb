// What the home lets an import do: its key, which regions it notes as cached here, and why an
// access was refused. Faults call it, in the SIGBUS handler with all signals blocked, and calls.
#pragma once

#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

// kNone, or why not, as far as it is known here.
Exception usable(Import& imp, bool write, uint32_t page);
// Whether a load from there asks nobody, most likely: the page may come or go at once.
bool is_at_hand(const View& view, const std::byte* addr);
// The key that is valid in this session; the token is presented for one. False: there is none in
// time, or no more.
bool session_key(ImporterCore& core, Import& imp, fabric::Session& session, fabric::RemoteKey* key,
                 Deadline deadline);
// Until no operation with the session key is under way; false when some still are at the deadline.
bool await_idle_key(Import& imp, Deadline deadline);
// Whether the home notes the regions of these pages, which are kFetching: it is asked to, if it
// does not.
bool acquire(Import& imp, uint32_t first, uint32_t n, Deadline deadline);
// Whether none of these pages, which are kFetching by this thread, is released any more: the home
// is asked to note those that are (rule 28). What it has not answered, it may have done: they stay
// released here.
bool enter_pages(Import& imp, PageRange pages, Deadline deadline);

// Whether no user of the import's segment has this name any more (core/base/holder.hpp), as its
// home says. kReconfig: the home does not say so in time; kNotSupp: it is of a version that cannot.
Result<bool> holder_gone(Import& imp, uint64_t holder, Deadline deadline);

// What the home says about an access that failed. kNone: nothing is wrong (any more). *brk: the
// home's, of an extensible segment that it knows our import of; else round 0.
Exception explain(ImporterCore& core, Import& imp, Deadline deadline, Break* brk = nullptr);
// Closes the import as the home said of what was asked under the token with this id. What is said
// of a token that has been replaced ends nothing: kUsable.
ImportState refused(ImporterCore& core, Import& imp, WireStatus status, uint64_t token);
// Something that was asked of the home was not answered. Silence alone does not say that it has
// ended: it is looked at. If it has, its imports are gone when this returns true.
bool home_has_ended(ImporterCore& core, Import& imp);

}  // namespace cmi::memory
