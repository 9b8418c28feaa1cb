// What the parts of a Node and its users name: the configuration, bounds, slots, and what the
// registry says of segments and reservations.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/clock.hpp"
#include "core/base/ids.hpp"

namespace cmi::node {

struct MachineMemory {  // bytes; UINT64_MAX: not known
  uint64_t total = UINT64_MAX;
  uint64_t free = UINT64_MAX;  // without hurting what runs
};

struct Config {
  std::string runtime_dir;  // exists or can be made; 0700; never created world-readable
  std::string name;         // CMI_NODE or the default name; any bytes
  uint64_t mem_max = 0;     // bytes all segments of the node may take; 0 is none
  NodeId id = {};           // where a folder was found and no name is known; none: name says
  bool default_dir =
      false;  // a join looks for the default folder, or makes it; runtime_dir is none
  // What the machine has; null: it is not asked, and mem_max is the only limit.
  MachineMemory (*machine)() = nullptr;
};

// The machine's identity: CMI_NODE's default, and part of every node id. One per network namespace.
std::string default_node_name();
// The same wherever 127.0.0.1 is the same: one boot of one machine, and one network namespace. 0:
// not known.
uint64_t machine_id();
// The same on one boot of one machine, whatever the namespaces. 0: not known.
uint64_t boot_id();
// Hash of machine and name: the same for all contexts of a node, different for two names.
NodeId node_id_of(const std::string& name);
inline NodeId node_id_of(const Config& c) { return c.id ? c.id : node_id_of(c.name); }
// Where the user's nodes are if nothing is said, or would be: default_folder.hpp has the rule.
std::string default_runtime_dir();
bool is_default_runtime_dir(const std::string& dir);

inline constexpr uint32_t kMaxContexts = 256;
inline constexpr uint32_t kMaxSegments = 4096;      // home segments and proxies together
inline constexpr uint32_t kMaxAttachments = 32768;  // views, whole node
inline constexpr uint32_t kMaxReservations = 64;

// Where a context sits in the registry. Stable while that context is a member.
enum class ContextSlot : uint32_t {};

enum class SegmentKind : uint8_t { kHome, kProxy };

enum SegmentMark : uint32_t {  // facts others may see in CMI_SEG_STATUS
  kMarkExported = 1,
  kMarkTokenSet = 2,
  kMarkQuiesced = 4,
};

struct SegmentInfo {
  int32_t id = 0;
  SegmentKind kind = SegmentKind::kHome;
  uint64_t size = 0;
  uint64_t brk = 0;          // where its memory ends; size where it is not extensible
  int32_t flags = 0;         // as given to seg_get; for a proxy the exporter's
  uint32_t marks = 0;        // SegmentMark
  bool removed = false;      // marked for deletion, or its owner is dead
  uint32_t attachments = 0;  // views in living contexts
  ContextSlot owner{};
  bool owner_alive = false;
  pid_t owner_pid = 0;
};

struct ReservationInfo {
  uint64_t key = 0;
  uint64_t size = 0;  // bytes promised
  uint64_t used = 0;  // by segments made within it; may be more than were promised
  pid_t maker_pid = 0;
};

// How long a call waits for the registry's lock; 0 instead: it is tried once, for callers that must
// not wait.
inline constexpr Nanos kUsualWait = 5 * kSecond;

// Bytes of a handle or token that a proxy keeps, at most.
inline constexpr size_t kMaxBlob = 1024;

// One entry per seg_at, counted in the registry until detach() or the context's end.
enum class Attachment : uint32_t {};

}  // namespace cmi::node
