// The named points of the node, in one list that the crash test walks through. Each stands beside a
// store, or a change of the folder, that another process can see; doc/design/registry.md says what
// is seen after a death at it.
#pragma once

namespace cmi::node {

inline constexpr const char* kFaultPoints[] = {
    // join
    "node.join.folder_made",
    "node.join.registry_made",
    "node.init.sized",
    "node.init.filled",
    "node.init.magic_stored",
    "node.join.life_locked",
    "node.join.socket_bound",
    "node.join.slot_filled",
    "node.join.published",
    // create_home, create_proxy
    "node.create.slot_filled",
    "node.create.claimed",
    "node.create.file_made",
    "node.create.file_filled",
    "node.create.ready",
    "node.create.published",
    "node.allocate.released",
    "node.allocate.taken",
    // reservations
    "node.reserve.held",
    "node.reserve.published",
    "node.reserve.grown",
    "node.reserve.resized",
    "node.unreserve.cleared",
    "node.unreserve.unlinked",
    // raise_break, lower_break, cut
    "node.break.charged",
    "node.break.allocated",
    "node.break.moved",
    "node.break.stored",
    "node.break.lowered",
    "node.break.cut",
    "node.break.freed",
    // marks and tokens
    "node.marks.before_store",
    "node.marks.stored",
    "node.token.written",
    "node.token.published",
    // attachments
    "node.attach.before_store",
    "node.attach.stored",
    "node.detach.before_store",
    "node.detach.cleared",
    // removal and deletion of a segment
    "node.remove.before_store",
    "node.remove.marked",
    "node.delete.before_unlink",
    "node.delete.unlinked",
    "node.delete.freed",
    // the end of a context, its own or by a reaper
    "node.retire.begin",
    "node.retire.segment_marked",
    "node.retire.segments_done",
    "node.retire.attachment_cleared",
    "node.retire.socket_unlinked",
    "node.retire.freed",
    // the end of the folder
    "node.folder.emptied",
    "node.folder.registry_unlinked",
    "node.folder.removed",
};

}  // namespace cmi::node
