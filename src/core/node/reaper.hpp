// Ending contexts and deleting segments, the caller's own or those that dead processes left.
// Everything is found by scanning the fixed arrays: no list, no counter, nothing that a dead
// process may have left half written. Each step may be repeated, so a reaper may die too.
#pragma once

#include "core/node/registry.hpp"

namespace cmi::node {

// Ends the membership in `slot`: marks its segments, clears its attachments, frees the slot last.
void retire_context_locked(Registry& r, const Exclusive& lock, uint32_t slot);

// Takes the file and frees the slot; its word is none that unpack refuses.
void delete_segment_locked(Registry& r, const Exclusive& lock, const SegmentWord& word);

// Retires the dead, repairs what no member can have written, deletes removed segments that nobody
// has attached. Returns how many dead contexts there were.
int reap_locked(Registry& r, const Exclusive& lock);

// Unlinks files that no slot names. `own_slot`: a context slot that is being taken, or
// kMaxContexts.
void sweep_locked(Registry& r, const Exclusive& lock, uint32_t own_slot = kMaxContexts);

bool needed_locked(Registry& r, const Exclusive& lock);

// Removes the folder; nobody may be a member, and the registry must not be used afterwards.
void remove_folder_locked(Registry& r, const Exclusive& lock);

}  // namespace cmi::node
