// What the registries of a runtime folder say, read without joining, locking or mapping anything:
// works while contexts hang and after they died, and changes nothing. A file is copied until two
// copies in a row are equal; each word of the copy is checked before it is believed.
// One thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/node/folder.hpp"
#include "core/node/layout.hpp"

namespace cmi::adm {

struct ContextRow {
  uint32_t slot = 0;
  ContextId id;
  pid_t pid = 0;        // here; 0: there is none to be seen
  pid_t own_pid = 0;    // in its own pid namespace, as the registry says; 0: none that can be one
  bool alive = false;   // its life lock is held
  char process = 0;     // state letter of /proc, 0 where there is no such process to be seen
  std::string program;  // of that process; empty: unknown
  uint32_t segments = 0, imports = 0, views = 0;

  bool stopped() const { return process == 'T' || process == 't'; }
  // "alive", "stopped" or "dead"
  const char* state() const;
};

struct SegmentRow {
  int32_t id = 0;
  node::SegmentKind kind = node::SegmentKind::kHome;
  node::SegmentState state = node::SegmentState::kFree;
  uint32_t marks = 0;
  uint64_t size = 0;     // bytes
  uint64_t brk = 0;      // bytes; size unless it is extensible
  uint64_t charged = 0;  // bytes that count against CMI_MEM_MAX
  uint64_t held = 0;     // bytes of memory that its file really takes
  int32_t flags = 0;
  uint32_t owner = 0;  // context slot
  pid_t owner_pid = 0;
  bool owner_alive = false;
  std::array<uint32_t, node::kMaxContexts> views_of{};  // by context slot, living contexts only
  uint32_t views = 0;
  std::string trouble;  // of its file; empty: none

  // "making", "live" or "removed": what a call on the node would find
  const char* state_name() const;
  bool left() const { return !owner_alive && views == 0; }  // by a dead context, and not used
  bool exported() const { return (marks & node::kMarkExported) != 0; }
  bool token_set() const { return (marks & node::kMarkTokenSet) != 0; }
};

struct ReservationRow {
  uint64_t key = 0;
  uint64_t size = 0;  // bytes promised
  uint64_t used = 0;  // bytes of segments made in it
  pid_t maker_pid = 0;
};

struct NodeRow {
  std::string name;      // of the folder: 16 hexadecimal digits
  std::string cmi_node;  // what its first process was told to call it; empty: not known
  NodeId id;
  std::string trouble;   // why nothing below is known; empty: it is
  bool settled = true;   // false: it changed all the time while it was read
  bool locked = false;   // somebody has held its lock for as long as we looked
  uint32_t damaged = 0;  // words that no member can have written
  uint32_t stale = 0;    // views of dead contexts
  std::vector<ContextRow> contexts;
  std::vector<SegmentRow> segments;
  std::vector<ReservationRow> reservations;

  // For people: its CMI_NODE, the digits if that is not known.
  std::string called() const;
  const ContextRow* context(uint32_t slot) const;
  uint32_t dead() const;  // contexts
  // Bytes of memory that a reaper would free: of segments that no living context has.
  uint64_t held_by_dead() const;
  uint32_t left_by_dead() const;  // the segments themselves
  node::Config config(const std::string& runtime_dir) const { return {runtime_dir, {}, 0, id}; }
};

struct Survey {
  std::string runtime_dir;
  std::string trouble;         // the folder itself cannot be used; empty: it can, or is not there
  std::vector<NodeRow> nodes;  // by what they are called
};

// The folder of one node, or of all. `only`: a folder's name, or empty.
Survey survey(const std::string& runtime_dir, const std::string& only);

// The folder that a node's name, or the 16 digits themselves, stand for.
std::string folder_of_node(const std::string& name_or_digits);

// The node's folder, opened for reading what a segment row names. No value: it is gone or not ours.
Result<node::Folder> open_node(const std::string& runtime_dir, const NodeRow& node);

}  // namespace cmi::adm
