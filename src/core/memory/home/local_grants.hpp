// How importers of this machine get the file of a segment, and lose the use of it.
#pragma once

#include "core/memory/home/home_core.hpp"
#include "core/memory/wire/local_messages.hpp"
#include "core/node/local_channel.hpp"

namespace cmi::memory {

// A process has sent its end of a socket, with its message in it. Service thread.
void on_local_channel(HomeCore& home, node::LocalChannel channel) CMI_EXCLUDES(home.mu);

// Says to the importers that map the segment whether somebody caches pages of it (rule 30). After a
// sharer has come, before it can have read anything, and after one has gone. Under the segment's
// lock `mu`.
void tell_if_alone(HomeCore& home, Segment& s) CMI_REQUIRES(home.mu);

// What the client has mapped of the segment is stored to no more; `instance`: of one import, 0: of
// all that the client has. Under the segment's locks.
void cut_off_local(Segment& s, const ContextId& client, uint32_t instance);

// Of a segment that was removed: its file, where importers of the machine may have it mapped and
// the removal is to leave them nothing. Under the segment's locks; the segment has no file then.
Fd take_passed_file(const HomeCore& home, Segment& s);
// Cuts that file to nothing when no process of the node has the segment attached any more, but for
// `own` attachments that are ending. A process that still maps it gets SIGBUS with its next load,
// also one that was stopped or means harm. Without locks.
void empty_passed_file(const HomeCore& home, int32_t id, Fd file, uint32_t own);

}  // namespace cmi::memory
