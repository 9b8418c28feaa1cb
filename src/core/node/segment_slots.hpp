// The segments of the node: their slots, ids and files, from making to removal.
// Invariant: a slot is live only when all of its segment's file is there, and free only when the
// file has gone. Threads: any; each call but anonymous_file() takes the
// exclusive lock.
#pragma once

#include "core/base/codec.hpp"
#include "core/base/fd.hpp"
#include "core/base/status.hpp"
#include "core/node/charges.hpp"
#include "core/node/seat.hpp"

namespace cmi::node {

class SegmentSlots {
 public:
  explicit SegmentSlots(const Seat& seat) : seat_(seat) {}

  // Home segments get a file of `size` bytes in the node's folder, really allocated and counted
  // against mem_max unless `reserve` is false (kNoMem when the file system or mem_max has no room,
  // kInval for size 0).
  // An extensible one begins with an empty file, and counts as much as its break. `reservation`:
  // the key of the one that its memory comes from; 0, or of none that there is: from what is free.
  // `large`: not null, it is to have large pages; it becomes the file, which has no name. Whole
  // large pages are taken and counted, from no reservation: those hold memory of the other kind.
  Result<int32_t> create_home(uint64_t size, int32_t flags, bool reserve, bool extensible = false,
                              uint64_t reservation = 0, Fd* large = nullptr);
  // A proxy counts its size, or that of its cache where that is less; the cache is an
  // anonymous_file; `blob` (at most kMaxBlob bytes: the handle) is kept for other processes of the
  // node.
  Result<int32_t> create_proxy(uint64_t size, int32_t flags, Bytes blob, bool extensible = false,
                               uint64_t cache = UINT64_MAX);
  Result<Fd> open_file(int32_t id);  // kInval: unknown id or a proxy
  // kInval: unknown id. A removed one is found while it exists. kReconfig: the registry's lock was
  // not had for so long.
  Result<SegmentInfo> find(int32_t id, Nanos wait = kUsualWait);
  // Owner only (kPerm otherwise). Twice is fine, also after the segment has gone, until its slot is
  // used again. Deletes at once what nobody has attached.
  Status remove(int32_t id);

  // An anonymous file of `size` bytes on the same file system (a proxy's cache): gone with its last
  // descriptor. Really allocated when `reserve`, counted against mem_max by the caller's proxy
  // slot.
  Result<Fd> anonymous_file(uint64_t size, bool reserve);

  uint64_t memory_in_use();  // bytes of all segments and reservations of the node
  // Bytes that the machine and the user's other nodes leave for more; UINT64_MAX: nobody asks.
  // Where that is less than is wanted, the dead of other nodes are cleaned up after first.
  uint64_t room_on_machine(uint64_t wanted);

 private:
  struct Claim {
    SegmentKind kind;
    uint64_t size, charged;
    int32_t flags;
    bool extensible;
    uint64_t reservation;
  };
  Result<int32_t> try_create_home(uint64_t size, int32_t flags, bool reserve, bool extensible,
                                  uint64_t reservation, Fd* large);
  Result<int32_t> try_create_proxy(uint64_t size, int32_t flags, Bytes blob, bool extensible,
                                   uint64_t cache);
  Result<Fd> try_anonymous_file(uint64_t size, bool reserve);
  // Claims a slot in state making. kNoMem: none is free, or mem_max would be passed.
  Result<SegmentWord> claim_locked(const Exclusive& lock, const Claim& claim, Outside outside);
  // From making to live, or away with it when `made` is an error.
  Result<int32_t> settle(SegmentWord word, Status made);

  const Seat& seat_;
};

}  // namespace cmi::node
