// The control messages between importers and homes, and the datagrams between contexts of a node:
// types, statuses, layouts. Pure.
// doc/design/wire.md shows them as tables; the frame around them is fabric/frame.hpp.
//
// A segment is named by its uid, an import of it by (client context, instance), because one process
// may import a segment twice and the two must keep each other coherent.
#pragma once

#include <array>
#include <cstdint>

#include "core/base/codec.hpp"
#include "core/base/ids.hpp"
#include "fabric/fabric.hpp"
#include "fabric/frame.hpp"

namespace cmi::memory {

// Requests, importer to home. Every reply starts with a WireStatus byte.
enum class RequestType : uint16_t {
  kOpen = 1,      // u64 uid, u32 instance              -> u64 size, i32 flags, i32 attrib,
                  // u16 port of the home's lifelines (0: none), u64 secret for one; of an
                  // extensible segment: Break
  kPresentToken,  // u64 uid, u32 instance, u64 token id, u64 secret, u64 node hi, u64 node lo
                  //                                    -> u64 key, u64 base, u32 rights; of an
                  // extensible segment: Break
  kLeave,         // u64 uid, u32 instance              -> (nothing)
  kPublish,   // u64 uid, u32 instance, u32 pages, then per page: u32 index, u8 epoch of the dirty
              // intent that it clears (0: none), diff; and last u64 secret of its direct acks, 0:
              // none are taken
              //                                    -> (nothing); sent when everyone has dropped it
  kAnnounce,  // u64 uid, u32 instance, u32 ranges, then per range: u32 first, u32 count
              //                                    -> like kPublish, for data that went by itself
  kCas,       // u64 uid, u32 instance, u64 offset, u64 expected, u64 desired -> u64 found
  kCause,     // u64 uid, u32 instance              -> status, break where extensible: may it go on?
  kRepair,    // u64 uid, u32 instance, u32 pages, then per page: u32 index, old page, new page
              //                                    -> like kPublish, for writes of unknown fate:
              // a byte is stored only where the old one still stands
  kAcquire,   // u64 uid, u32 instance, u32 first region, u32 regions, u32 epoch
              //                                    -> (nothing): tell us of invalidation rounds
              //                                    there
  kDirtyIntent,  // u64 uid, u32 instance, then per page: u32 index, u8 epoch
                 //                                    -> (nothing): these are about to be stored to
  kDropIntent,   // like kDirtyIntent                         -> (nothing): they are as the home has
                 // them
  kAskFlux,      // u64 uid, u32 instance, u32 page    -> status alone: kInFlux, kBroken, or kOk
  kFetchWithIntent,  // u64 uid, u32 instance, u32 page, u8 epoch -> the page, which has its dirty
                     // intent now
  kSubscribe,        // u64 uid, u32 instance, u32 page, u32 epoch -> (nothing): send what is stored
                     // there along with the notification
  kPublishSwap,  // u64 uid, u32 instance, u64 offset, u64 expected, u64 desired, u32 pages, then
                 // pages as in kPublish, without a secret
                 //                                    -> u8 status of the swap, u64 found; status
                 // kOk: everyone has dropped the pages, and then the swap was made
  kEnterPages,   // u64 uid, u32 instance, u32 first, u32 pages -> tell us of these pages again that
                 // we have released; and the page, where it is one
  kAskHolder,    // u64 uid, u32 instance, u64 holder -> u8 gone: is what had that name as a user of
                 // the segment (core/base/holder.hpp) still one?
  kLocalOffer,   // u64 uid, u32 instance           -> u8 LocalRefusal, u64 ticket hi, u64 ticket
                 // lo, u32 slot, path of the node's folder: there the segment's file can be had
  kSwapFetch,    // u64 uid, u32 instance, u64 offset, u64 expected, u64 desired, u8 whether the
                 // word's page is wanted, u8 epoch of its dirty intent (0: it is not wanted), u32
                 // pages, then pages as in kPublishSwap -> as kPublishSwap; then u8 whether the
                 // intent is set, and the page, where it is one
  kAcquireFetch,  // u64 uid, u32 instance, u32 page, u8 epoch of its dirty intent (0: it is not
                  // wanted), u32 epoch of its region -> as kFetchWithIntent, or as kEnterPages of
                  // one page, by an import that does not share its region yet: as kAcquire, first
  kGoodbye = 32,  // (nothing)                      -> (nothing): this context ends, with all of
                  // its imports, and nothing of it is under way
  kReturned,      // u64 uid, u32 instance, u32 round -> (nothing): the client has quiesced
  kAlive,         // (nothing)                      -> (nothing): can you be reached?
  // Of write-through imports, whose loads and stores are made at home.
  kOpenWriteThrough = 64,  // like kOpen
  kLoad,                   // u64 uid, u32 instance, u64 offset, u32 length -> the bytes
  kStore,  // u64 uid, u32 instance, u64 offset, u32 runs, then per run: u16 at, u16 length, bytes
           //                                    -> (nothing): they are in the home's memory
  kSwap,   // u64 uid, u32 instance, u64 offset, u8 size, `size` bytes expected, as many desired
           //                                    -> the bytes found
  kPresentTokenWriteThrough,  // like kPresentToken
  kLast = kPresentTokenWriteThrough,
};

// Notifications, home to importer. Acknowledged when the importer has carried it out.
enum class NotificationType : uint16_t {
  kInvalidate = 1,  // u64 uid, u32 instance, u16 ranges, then per range: u32 first, u32 count; then
                    // updates, each: u32 page, u32 epoch, u32 number, u16 length, diff
  kRevoke,          // u64 uid, u32 instance, u64 token id
  kRemoved,         // u64 uid, u32 instance, u8 RemovedHow
  kInFlux,          // like kInvalidate: not to be accessed before the home has been asked
  // With uid and instance 0: they are about the home.
  kGoodbye = 32,  // this context ends, and all that was imported from it; or it has cut you off
  kAlive,         // can you be reached?
  // About one import again.
  kQuiesce,  // u64 uid, u32 instance, u32 round: the client is to stop using it
  kResume,   // u64 uid, u32 instance, u32 round: it may go on
  // u64 uid, u32 instance, Break, u64 low: nothing behind the break may be accessed, and what the
  // import has from `low` on is of before (low_of in home/segment.hpp)
  kBreak,
  kLast = kBreak,
};

// Why an importer of the home's machine gets no file of the segment. kNone: it gets it.
enum class LocalRefusal : uint8_t {
  kNone = 0,
  kOff,    // the home does not offer it
  kPart,   // the token is for a part of the segment
  kLarge,  // the segment has large pages
  kShort,  // the home has no descriptors to spare
  kLast = kShort,
};

enum RemovedHow : uint8_t {
  kRemovedGone = 1,    // nobody has it attached any more
  kRemovedEnding = 2,  // because its context ends: it was not marked for deletion before
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
  kInFlux,        // the page was being stored to when an importer died, and was not recovered
  kBroken,        // the home's memory has an uncorrectable error there
  kBreakUnacknowledged,  // a break that this import has not acknowledged is to be heard of first
  kEnding = 32,          // gone with its context
  kImportedOtherwise =
      64,  // imported the other way at present, cached or write-through; or not exported so
};

// Direct acks stand for an answer that begins with kOk.
static_assert(fabric::kReceived[0] == std::byte{static_cast<uint8_t>(WireStatus::kOk)});

// Datagrams between contexts of one node.
enum BusWhat : uint8_t {
  kBusView = 1,        // a: address, b: length; a pagemap descriptor comes along
  kBusUnview = 2,      // a: address, b: length; scanned before it is forgotten
  kBusBarrier = 3,     // publish what this node stored
  kBusPublish = 4,     // a, b: first page and number of those changed unnoted: swapped, by devices
  kBusStored = 5,      // a: number of page ranges that follow, stored to and not found by a scan
  kBusLook = 6,        // has views of the segment: wants to know its pages in flux from now on
  kBusInFlux = 7,      // a: version of the list whose file comes along
  kBusInFluxSeen = 8,  // a: version; pages are covered and uncovered accordingly
  kBusFile = 9,        // wants the file of the segment, which has no name; the answer has it
  kBusHolder = 10,     // a: a holder; the answer's status says whether it is a user of the segment
  kBusLost = 33,       // a: number of page ranges that follow, whose stores are lost; b: how
  kBusToken = 36,      // its importer here has set another token for a proxy
  kBusShrunk = 37,     // a: the break that its file was cut to, bytes
  kBusAnswer = 0x80    // question is done
  // and kBusQuiesce of core/node/quiesce.hpp
};
// How, in kBusLost.
inline constexpr uint64_t kLostLocal = 1;  // by a fault of this side
inline constexpr uint64_t kLostLast = 2;   // this is all

// Where the memory of an extensible segment ends, and which of its breaks this is. On the wire: u64
// bytes, u32 round.
struct Break {
  uint64_t bytes = 0;
  uint32_t round = 0;  // counts from 1
};
inline bool legal_break(const Break& brk) { return brk.round != 0 && brk.bytes % kPageSize == 0; }

struct PageRange {
  uint32_t first = 0, count = 0;
};

// The dirty intent of a page, and which one (IntentState).
struct DirtyIntent {
  uint32_t page = 0;
  uint8_t epoch = 0;
};
inline constexpr size_t kDirtyIntentSize = sizeof(uint32_t) + sizeof(uint8_t);  // on the wire
// Of notifications about the home: uid and instance 0.
inline constexpr std::array<std::byte, 12> kAboutHome{};

inline constexpr size_t kMaxWriteThrough = kPageSize;  // bytes of one load or store at home

inline constexpr uint32_t kMaxRanges = 2048;   // of one notification
inline constexpr uint32_t kRegionPages = 512;  // 2 MiB: what the directory knows one by one
// Of one acknowledgement, behind u64 uid, u32 instance: regions that the importer has let go of,
// u32 region, u32 epoch each; and pages, u32 page, u32 0 each.
inline constexpr uint32_t kMaxReleased = 1024;
// An invalidation of more pages than these releases none of them by itself: a node that stores to
// so many at once stores to none of them often.
inline constexpr uint32_t kReleaseSome = 4;

}  // namespace cmi::memory
