// What the parts of a context work with, and how long their calls wait.
#pragma once

#include <cmi.h>

#include "core/base/clock.hpp"
#include "core/base/ids.hpp"
#include "core/base/status.hpp"
#include "core/context/allocator.hpp"
#include "core/context/environment.hpp"
#include "core/memory/engine/engine.hpp"
#include "core/node/node.hpp"
#include "events/events.hpp"

namespace cmi::context {

// The least that a home is given to answer an import, however short the client's own timeout is.
inline constexpr Nanos kFirstContact = 5 * kSecond;
// A barrier waits for homes and importers as long as they answer. One that does not is declared
// dead first; what it owes for so much longer counts as lost.
inline constexpr Nanos kAfterVerdict = 5 * kSecond;
// Importers and homes have so long for their answers to what ends; then they are cut off.
inline constexpr Nanos kRevokeTimeout = 2 * kSecond;
// The least that a call waits for importers to end their reading, however short the client's own
// timeout is.
inline constexpr Nanos kLeastEnd = 5 * kSecond;

// All of it lives as long as the context.
struct Services {
  const Environment& environment;
  const Allocator& allocator;
  node::Node& node;
  memory::Engine& engine;
  events::Events& events;
  ContextId id;
  uint16_t version = 0;  // of the interface: what cmi_ini agreed on

  // What the registry says of a segment. kInval: there is none; kReconfig: the registry was not to
  // be had.
  Result<node::SegmentInfo> known(int32_t seg) const;

  Nanos call_timeout() const { return engine.importer().reconf_timeout().get(); }
  memory::JoinTime join_time() const;
  // For a home that lives: what waits for it goes on for so long.
  Nanos longest_wait() const;
  // For importers, in a call that ends something: until the verdict, or for the client's own
  // timeout where it has set one.
  memory::EndWait end_wait() const;
};

// The cause of a call that failed with kReconfig for the registry's sake.
inline constexpr const char* kRegistryHeld =
    "a process of this node holds its registry and does not run";

}  // namespace cmi::context
