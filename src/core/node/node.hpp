// A process's membership of its node: the shared registry of contexts and segments, the files
// behind segments, and the datagram bus between the contexts of the node. Node joins, leaves, and
// makes the parts; each part has its own header.
//
// Registry: one file with fixed arrays of plain slots. A slot changes state by one word-sized
// store, so a process that dies at any instruction leaves every slot old or new; every change is
// made under the node's exclusive lock, which the kernel releases with its holder. A context is
// alive exactly while the kernel holds its OFD lock. Nothing trusts what lies in the file: indices,
// lengths and states are checked when read.
//
// Threads: any thread may call; not from the fault handler, but for the functions that say so.
#pragma once

#include <memory>

#include "core/base/status.hpp"
#include "core/node/attachments.hpp"
#include "core/node/bus.hpp"
#include "core/node/late_reaper.hpp"
#include "core/node/members.hpp"
#include "core/node/node_types.hpp"
#include "core/node/proxies.hpp"
#include "core/node/reservations.hpp"
#include "core/node/segment_breaks.hpp"
#include "core/node/segment_marks.hpp"
#include "core/node/segment_slots.hpp"

namespace cmi::node {

class Node {
 public:
  // Makes folder and registry where they are missing, reaps what dead contexts left, takes a slot.
  // kNoMem: slots or shared memory exhausted. kPerm: the folder belongs to someone else or is open
  // to others. kInval: the registry is of another version or size. kReconfig: lock not had in time.
  static Result<std::unique_ptr<Node>> join(const Config& config, ContextId self);
  // Leaves as if the process had ended: its segments are marked for deletion, its attachments end,
  // files nobody needs go, and the folder too when this was the last member.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // In a forked child: closes what was inherited without touching the registry, so that the
  // parent's liveness is the parent's alone. The Node may then only be abandoned or destroyed: the
  // registry was never mapped in the child.
  void forget_in_child();

  NodeId id() const { return node_id_of(seat_.config); }
  ContextSlot slot() const { return ContextSlot{seat_.slot}; }
  const Config& config() const { return seat_.config; }

  Members& members() { return members_; }
  Bus& bus() { return bus_; }
  SegmentSlots& segments() { return segments_; }
  LateReaper& late_reaper() { return late_reaper_; }
  Attachments& attachments() { return attachments_; }
  Proxies& proxies() { return proxies_; }
  SegmentMarks& marks() { return marks_; }
  SegmentBreaks& breaks() { return breaks_; }
  Reservations& reservations() { return reservations_; }

 private:
  Node(const Config& config, ContextId self) : seat_{config, self, kMaxContexts, nullptr} {}
  static Result<std::unique_ptr<Node>> try_join(const Config& config, ContextId self);
  Status take_slot_locked(const Exclusive& lock);

  Seat seat_;
  Members members_{seat_};
  Bus bus_{seat_};
  SegmentSlots segments_{seat_};
  LateReaper late_reaper_{seat_};
  Attachments attachments_{seat_};
  Proxies proxies_{seat_};
  SegmentMarks marks_{seat_};
  SegmentBreaks breaks_{seat_, marks_};
  Reservations reservations_{seat_};
};

// For cmiadm and tests: reaps the node's folder without joining it; removes the folder when nobody
// is left. Returns how many dead contexts were found. kReconfig: its lock was not had in time.
Result<int> reap_folder(const Config& config, Nanos wait = kUsualWait);

// The same without joining it; the folder goes when nothing else is in it.
Status delete_reservation(const Config& config, uint64_t key);

}  // namespace cmi::node
