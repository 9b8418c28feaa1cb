// A process's membership of its node: the shared registry of contexts and segments, the files
// behind segments, and the datagram bus between the contexts of the node.
//
// Registry: one file with fixed arrays of plain slots. A slot changes state by one word-sized
// store, so a process that dies at any instruction leaves every slot old or new; every change is
// made under the node's exclusive lock, which the kernel releases with its sharer. A context is
// alive exactly while the kernel holds its OFD lock. Nothing trusts what lies in the file: indices,
// lengths and states are checked when read.
//
// Threads: any thread may call; not from the fault handler, but for the functions that say so.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/codec.hpp"
#include "core/base/fd.hpp"
#include "core/base/ids.hpp"
#include "core/base/status.hpp"

namespace cmi::node {

struct Config {
  std::string runtime_dir;  // exists or can be made; 0700; never created world-readable
  std::string name;         // CMI_NODE or the default name; any bytes
  uint64_t mem_max = 0;     // bytes all segments of the node may take; 0 is none
  NodeId id = {};           // where a folder was found and no name is known; none: name says
};

// The machine's identity: CMI_NODE's default, and part of every node id. One per network namespace.
std::string default_node_name();
// The same wherever 127.0.0.1 is the same: one boot of one machine, and one network namespace. 0:
// not known.
uint64_t machine_id();
// Hash of machine and name: the same for all contexts of a node, different for two names.
NodeId node_id_of(const std::string& name);
inline NodeId node_id_of(const Config& c) { return c.id ? c.id : node_id_of(c.name); }
// "/dev/shm/cmi-UID"; where another user has taken that name, the first of "/dev/shm/cmi-UID-1" to
// -99 that is ours or free. The user's processes find each other: one that is ours comes before one
// that is free.
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

// One entry per seg_at, counted in the registry until detach() or the context's end.
enum class Attachment : uint32_t {};

// Size: it is the one face of the registry toward the layers above. The data lies in Registry,
// LockFile, Folder and the slots of layout.hpp; each kind of slot has its own file here.
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

  NodeId id() const;
  ContextSlot slot() const;
  // Where processes of other nodes of the machine find this context: for LocalChannel::ask().
  struct Address {
    std::string folder;  // path
    uint32_t slot = 0;
  };
  Address address() const;
  const Config& config() const;

  // Home segments get a file of `size` bytes in the node's folder, really allocated and counted
  // against mem_max unless `reserve` is false (kNoMem when the file system or mem_max has no room,
  // kInval for size 0). A proxy counts its size; its cache is an anonymous_file; `blob` (at most
  // kMaxBlob bytes: the handle) is kept for other processes of the node.
  static constexpr size_t kMaxBlob = 1024;
  // An extensible one begins with an empty file, and counts as much as its break. `reservation`:
  // the key of the one that its memory comes from; 0, or of none that there is: from what is free.
  // `large`: not null, it is to have large pages; it becomes the file, which has no name. Whole
  // large pages are taken and counted, from no reservation: those hold memory of the other kind.
  Result<int32_t> create_home(uint64_t size, int32_t flags, bool reserve, bool extensible = false,
                              uint64_t reservation = 0, Fd* large = nullptr);
  Result<int32_t> create_proxy(uint64_t size, int32_t flags, Bytes blob, bool extensible = false);
  // Moves the end of an extensible segment's file, `fd`, up; nobody else moves it meanwhile. Owner
  // only (kPerm). Really allocated if `reserve` (kNoMem, and nothing has changed), from that
  // reservation.
  Status raise_break(int32_t id, int fd, uint64_t to, bool reserve, uint64_t reservation = 0);
  // Down, in two steps, so that what can fail for others' sake (kReconfig: the lock was not had)
  // comes before anybody has given up anything: from lower_break() on nobody uses what lies behind
  // `to` in while_steady(); cut() frees it, and gives it back to where it came from, if need be
  // when the lock can be had.
  Status lower_break(int32_t id, uint64_t to);
  Status cut(int32_t id, int fd, uint64_t to);
  // Whether so much more may count against mem_max: kNoMem.
  Status has_room(uint64_t bytes);
  // The break of a proxy, as its home sent it; it counts as much.
  Status store_break(int32_t id, uint64_t to);
  // Runs `use` with the segment's break, or more where it has none, while none of the node is
  // lowered. kReconfig: it did not run.
  Status while_steady(int32_t id, const std::function<void(uint64_t brk)>& use);
  Result<Fd> open_segment_file(int32_t id);  // kInval: unknown id or a proxy
  // kInval: unknown id. A removed one is found while it exists. kReconfig: the registry's lock was
  // not had for so long; 0: it is tried once, for callers that must not wait.
  static constexpr Nanos kUsualWait = 5 * kSecond;
  Result<SegmentInfo> find(int32_t id, Nanos wait = kUsualWait);
  Result<std::vector<std::byte>> proxy_blob(int32_t id);
  // The token that the importer set for a proxy, for the other processes; each store raises
  // version, which is 0 while there is none. Storing is the owner's alone (kPerm).
  Status store_proxy_token(int32_t id, Bytes token);
  Result<std::vector<std::byte>> proxy_token(int32_t id, uint64_t* version);
  Status set_marks(int32_t id, uint32_t set, uint32_t clear);
  // For callers that must not wait, or hold a lock: noted now, made by settle_marks() in this
  // order.
  void note_marks(int32_t id, uint32_t set, uint32_t clear);
  // False: the lock was not had in time, and some are left.
  bool settle_marks(Nanos wait);

  // kInval when the segment is removed (its owner's death counts). kNoMem: no slot.
  Result<Attachment> attach(int32_t id);
  // Ends it; deletes the segment if it was the last attachment of a removed one.
  void detach(Attachment a);
  // Contexts with views of the segment, each once.
  std::vector<ContextSlot> attached(int32_t id);
  // Owner only (kPerm otherwise). Twice is fine, also after the segment has gone, until its slot is
  // used again. Deletes at once what nobody has attached.
  Status remove(int32_t id);

  // An anonymous file of `size` bytes on the same file system (a proxy's cache): gone with its last
  // descriptor. Really allocated when `reserve`, counted against mem_max by the caller's proxy
  // slot.
  Result<Fd> anonymous_file(uint64_t size, bool reserve);

  uint64_t memory_in_use();  // bytes of all segments and reservations of the node

  // Reservations: memory that is really there, held until segments are made within it; they outlive
  // their makers, and keep the node's folder. What segments give back they hold again.
  // kNoMem: there is not so much. A size that is no whole number of pages is raised to one.
  Result<uint64_t> reserve(uint64_t asked);  // the key
  // kInval: no such reservation, or less than is in use.
  Status resize_reservation(uint64_t key, uint64_t asked);
  // Its segments stay, what it held is free.
  Status delete_reservation(uint64_t key);
  Result<ReservationInfo> find_reservation(uint64_t key);
  std::vector<ReservationInfo> reservations();
  // After the last mapping of a deleted segment has gone: only then is its memory free to be held.
  void refill_reservations();

  bool alive(ContextSlot slot, ContextId id);  // false when another context sits there by now
  // The same as far as the registry says: a killed one stays a member until the next reap().
  bool member(ContextSlot slot, ContextId id) const;
  // Living member with this context id; kInval when there is none here.
  Result<ContextSlot> find_context(ContextId id);
  std::vector<ContextSlot> members();
  // Whether `is` holds for the id of some living member.
  bool any_member(const std::function<bool(const ContextId&)>& is);

  // Cleans up after dead contexts; also done by join. Returns how many were found.
  Result<int> reap();

  // The bus: datagrams of at most kMaxDatagram bytes, at most one descriptor passed along.
  static constexpr size_t kMaxDatagram = 8192;
  int bus_fd() const;  // readable when something arrived; non-blocking
  // kReconfig: the receiver's queue is full, try again; kInval: no such member any more.
  Status bus_send(ContextSlot to, Bytes message, int pass_fd = -1);
  struct Datagram {
    ContextSlot from{};
    ContextId sender;  // of no question and no channel
    std::vector<std::byte> bytes;
    Fd fd;
    bool question = false;  // by a process that is no member; see inquiry.hpp
    bool channel = false;   // the same; see local_channel.hpp
  };
  // Next datagram of a member, or a question; kReconfig when none waits. Those of other users, of
  // contexts that have left and of nobody are dropped.
  Result<Datagram> bus_receive();

 private:
  Node() = default;
  Status note_break(int32_t id, uint64_t to, Nanos wait);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// For cmiadm and tests: reaps the node's folder without joining it; removes the folder when nobody
// is left. Returns how many dead contexts were found.
Result<int> reap_folder(const Config& config);

// The same without joining it; the folder goes when nothing else is in it.
Status delete_reservation(const Config& config, uint64_t key);

}  // namespace cmi::node
