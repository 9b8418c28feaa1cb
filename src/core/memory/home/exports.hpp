// Exporting, tokens and their revocation, and the end of a segment as its importers see it.
// Threads: application threads; delete_token() and removed() wait for importers.
#pragma once

#include "core/memory/home/home_core.hpp"
#include "core/memory/home/unfinished_ends.hpp"

namespace cmi::memory {

class Exports {
 public:
  explicit Exports(HomeCore& home) : home_(home) {}
  uint32_t count();  // that are in force
  // kInval: there is no such segment. kPerm: another process's. kNoMem: too many are exported.
  Result<access::RsegInfo> export_segment(int32_t id, int32_t flags, int32_t attrib);
  // `part`: nullptr for the whole segment. kBound: the node has a token already. Else as above.
  Result<access::TokenInfo> new_token(int32_t id, bool any_node, NodeId node, uint32_t rights,
                                      const access::TokenPart* part);
  // kOk: nobody uses the token any more, on any node. kReconfig: nothing of it is in force here,
  // but an importer has neither answered nor been declared dead; once more waits for that. kPerm:
  // another context made it. kInval: it is not in force.
  Status delete_token(const access::TokenInfo& token, const EndWait& wait);
  // Tells importers that the segment is marked for deletion. kOk, kReconfig: as above.
  Status removed(int32_t id, const EndWait& wait);

 private:
  bool too_many_tokens(const Segment& s) CMI_EXCLUDES(home_.mu);
  Status revoke(const access::TokenInfo& token, const RoundPtr& p);
  bool notify_removed(int32_t id, bool gone, uint64_t* uid, const RoundPtr& p);
  void close_keys(const access::TokenInfo& token);
  void end_segment(int32_t id);
  Status await_rest(uint64_t what, const EndWait& wait);

  HomeCore& home_;
  UnfinishedEnds unfinished_;
};

}  // namespace cmi::memory
