// Attachments: which contexts have views of which segment. One word each, taken by attach(),
// cleared by detach() or when the context is retired.
// Invariant: a removed segment is deleted with the last attachment that a living context has of it.
// Threads: any; each call takes the exclusive lock.
#pragma once

#include <vector>

#include "core/base/status.hpp"
#include "core/node/seat.hpp"

namespace cmi::node {

class Attachments {
 public:
  explicit Attachments(const Seat& seat) : seat_(seat) {}

  // kInval when the segment is removed (its owner's death counts). kNoMem: no slot.
  Result<Attachment> attach(int32_t id);
  // Ends it; deletes the segment if it was the last attachment of a removed one.
  void detach(Attachment a);
  // Contexts with views of the segment, each once.
  std::vector<ContextSlot> of(int32_t id);

 private:
  const Seat& seat_;
};

}  // namespace cmi::node
