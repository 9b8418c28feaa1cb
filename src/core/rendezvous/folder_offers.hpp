// Offers as files of a folder: NAME.cmi, of mode 0600. A file appears whole or not at all, and
// takes the place of an earlier one. It is written without a name, so that a process that is killed
// meanwhile leaves nothing; where it replaces another, it is .NAME.part for a moment, which the
// next offer or removal of the name takes away. A file system without nameless files (NFS) has it
// under a random name meanwhile.
//
// Any thread, without locks. A file is trusted only if it is a regular one of the effective user.
#pragma once

#include <string>

#include "core/rendezvous/offer.hpp"

namespace cmi::rendezvous {

// All three take an absolute or relative path of a folder, and a legal name.

// kInval: no folder, or not handle and token of the same segment; kPerm: it may not be written to;
// kNoMem: no room, or no descriptors.
Status write_offer(const std::string& folder, const std::string& name, const Offer& offer);
// kReconfig: there is none, or no such folder; kPerm: another user's, or it may not be read;
// kInval: damaged; kNoMem: no descriptors.
Result<Offer> read_offer(const std::string& folder, const std::string& name);
// No offer is left there; that there was none is kOk, too. kPerm, kInval: as write_offer().
Status remove_offer(const std::string& folder, const std::string& name);

}  // namespace cmi::rendezvous
