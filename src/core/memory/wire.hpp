// The control messages between importers and homes: types, statuses, layouts. Pure.
// doc/design/wire.md shows them as tables; the frame around them is fabric/frame.hpp.
//
// A segment is named by its uid, an import of it by (client context, instance), because one process
// may import a segment twice and the two must keep each other coherent.
#pragma once

#include <cstdint>

#include "fabric/fabric.hpp"

namespace cmi::memory {

// Requests, importer to home. Every reply starts with a WireStatus byte.
enum class RequestType : uint16_t {
  kOpen = 1,  // u64 uid                            -> u64 size, i32 flags, i32 attrib,
              // u16 port of the home's lifelines (0: none), u64 secret for one
  kPresent,   // u64 uid, u32 instance, u64 token id, u64 secret, u64 node hi, u64 node lo
              //                                    -> u64 key, u64 base, u32 rights
  kLeave,     // u64 uid, u32 instance              -> (nothing)
  kPublish,   // u64 uid, u32 instance, u32 pages, then per page: u32 index, diff
              //                                    -> (nothing); sent when everyone has dropped it
  kAnnounce,  // u64 uid, u32 instance, u32 ranges, then per range: u32 first, u32 count
              //                                    -> like kPublish, for data that went by itself
  kCas,       // u64 uid, u32 instance, u64 offset, u64 expected, u64 desired -> u64 found
  kCause,     // u64 uid, u32 instance              -> status alone: may this instance go on?
  kRepair,    // u64 uid, u32 instance, u32 pages, then per page: u32 index, old page, new page
              //                                    -> like kPublish, for writes of unknown fate:
              // a byte is stored only where the old one still stands
  kHold,      // u64 uid, u32 instance, u32 first region, u32 regions, u32 epoch
              //                                    -> (nothing): tell us of publications there
};

// Notices, home to importer. Acknowledged when the importer has done as told.
enum class NoticeType : uint16_t {
  kInvalidate = 1,  // u64 uid, u32 instance, u32 ranges, then per range: u32 first, u32 count
  kRevoke,          // u64 uid, u32 instance, u64 token id
  kRemoved,         // u64 uid, u32 instance, u8 gone (1: nobody has it attached any more)
};

enum class WireStatus : uint8_t {
  kOk = 0,
  kGone,     // no such segment (any more)
  kRemoved,  // marked for deletion, still attached at its home
  kToken,    // no token presented, unknown, revoked
  kNode,     // the token is another node's
  kRights,   // the token lacks the right
  kRange,    // beyond the segment's end
  kMalformed,
  kNoMem,
  kNotPresented,  // this import has not presented a token since the home knows of it
};

struct PageRange {
  uint32_t first = 0, count = 0;
};

inline constexpr uint32_t kMaxRanges = 2048;   // of one notice
inline constexpr uint32_t kRegionPages = 512;  // 2 MiB: what the directory knows one by one
// Of one acknowledgement: regions that the importer has let go of, u32 region, u32 epoch each.
inline constexpr uint32_t kMaxLetGo = 1024;

}  // namespace cmi::memory
