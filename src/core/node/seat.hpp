// What the parts of a Node share: the name of the context, its open registry, and the look at one
// segment's slot that most of them begin with.
// Threads: any. After join() nothing of a Seat changes, but for the registry's contents.
#pragma once

#include <memory>
#include <optional>

#include "core/node/registry.hpp"

namespace cmi::node {

// A segment as its slot shows it; valid under the exclusive lock.
struct FoundSegment {
  Segment_shm* shm;
  SegmentWord word;
};

struct Seat {
  Config config;
  ContextId self;
  uint32_t slot = kMaxContexts;  // until one is taken
  std::unique_ptr<Registry> registry;

  bool owns(const FoundSegment& f) const {
    return f.word.owner == slot && f.shm->owner_hi == self.hi && f.shm->owner_lo == self.lo;
  }
};

// The segment with this id while it exists; one in the making exists for nobody.
std::optional<FoundSegment> find_locked(Registry& r, const Exclusive& lock, int32_t id);
bool owner_alive(const Registry& r, const FoundSegment& f, Living& living);
// How many attachments living contexts have of it.
uint32_t count_attachments(Registry& r, int32_t id, Living& living);

}  // namespace cmi::node
