// Tokens of imports: how one comes into force, and how processes of a node share it. Application
// threads, in the fault handler too; changed(): the service thread.
#pragma once

#include "core/memory/importer/importer_core.hpp"

namespace cmi::memory {

class Tokens {
 public:
  explicit Tokens(ImporterCore& core) : core_(core) {}

  // Makes the token the one in use. kPerm: another node's. kInval: another segment's, or it would
  // need write-through. A token that the home has revoked is taken: accesses then raise TOKEN.
  // kReconfig: the former token still ends at the deadline.
  Status set(const std::shared_ptr<Import>& imp, const access::TokenInfo& token, Deadline deadline);
  // Whether the process that imported the segment has set a token since this one last looked: one
  // token serves the whole node. Only asked when an access is about to fail for want of one.
  bool adopt(const std::shared_ptr<Import>& imp, Deadline deadline);
  // The registry's token of this version is the one that the import has.
  static void took(Import& imp, uint64_t version);
  // The process that imported the segment for this node has set another token: nothing is accessed
  // under the old one when this returns.
  void changed(int32_t id);

 private:
  Status check(const Import& imp, const access::TokenInfo& token) const;

  ImporterCore& core_;
};

}  // namespace cmi::memory
