// The plain shared structures of the registry file, and the coding of its state words.
// A state word is the truth about its slot: everything else in a slot is written while the word
// says free, and read only while it says something else. All fields but the words are touched under
// the exclusive lock alone. Pure code; any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/node/node_types.hpp"

namespace cmi::node {

using Word_shm = std::atomic<uint64_t>;
static_assert(Word_shm::is_always_lock_free && sizeof(Word_shm) == 8);

inline constexpr uint64_t kRegistryMagic = 0x31676572696d63ffull;  // never zero
inline constexpr uint32_t kRegistryVersion = 3;

struct Header_shm {
  Word_shm magic;  // 0 until everything behind it is in place
  uint32_t version;
  uint32_t header_bytes;
  uint32_t contexts, segments, attachments;  // array lengths
  uint32_t context_bytes, segment_bytes;
  uint32_t reservations;  // array length
  uint64_t node_hi, node_lo;
  // No slot at or above these was ever taken. Raised before the slot is: a crash between leaves
  // them too high, which costs a longer scan and nothing else.
  Word_shm segments_high, attachments_high;
  // What the process that made the registry calls the node, cut to this length, NUL where it is
  // shorter; for people alone. Empty: an older version of the library made it.
  char name[48];
};
static_assert(sizeof(Header_shm) == 120);

struct Context_shm {
  Word_shm state;  // kContextFree or kContextMember; alive is what the life lock says
  Word_shm id_hi, id_lo;
  Word_shm pid;
};
static_assert(sizeof(Context_shm) == 32);
inline constexpr uint64_t kContextFree = 0, kContextMember = 1;

// Of a segment's memory: what lies before `end` and behind the portion before it comes from the
// reservation with this key; 0, or gone: from none. Growth of an extensible one adds portions.
struct Portion_shm {
  uint64_t key;
  uint64_t end;  // bytes; 0: no portion
};
inline constexpr int kMaxPortions = 4;

struct Segment_shm {
  Word_shm state;       // SegmentWord; 0 is free
  uint32_t generation;  // of the id that the slot has, or had last; 1 to kMaxGeneration
  int32_t flags;
  uint64_t size;                // bytes
  uint64_t charged;             // bytes that count against mem_max
  uint64_t owner_hi, owner_lo;  // ContextId
  int64_t owner_pid;
  uint64_t brk;                        // bytes; kNoBreak where it is not extensible
  Portion_shm portions[kMaxPortions];  // of `charged`, which they add up to
};
static_assert(sizeof(Segment_shm) == 128);
inline constexpr uint64_t kNoBreak = UINT64_MAX;

// Where the memory of its next growth counts: with this key, or, when it has had many, with the
// last.
inline uint64_t next_portion(const Segment_shm& s, uint64_t key) {
  const Portion_shm& last = s.portions[kMaxPortions - 1];
  return last.end != 0 ? last.key : key;
}

// `charged` becomes so much: what is more comes from this reservation, what is less goes back to
// those that gave it last.
inline void charge(Segment_shm& s, uint64_t charged, uint64_t key) {
  uint64_t end = 0;
  int n = 0;
  for (const Portion_shm portion : s.portions) {
    if (portion.end <= end || end == charged) continue;
    end = portion.end < charged ? portion.end : charged;
    s.portions[n++] = {portion.key, end};
  }
  if (end < charged) {
    if (n == 0 || (n < kMaxPortions && s.portions[n - 1].key != key)) {
      s.portions[n++] = {key, charged};
    } else {
      s.portions[n - 1].end = charged;
    }
  }
  while (n < kMaxPortions) s.portions[n++] = {};
  s.charged = charged;
}

// Bytes of it that the reservation with this key has given.
inline uint64_t charged_to(const Segment_shm& s, uint64_t key) {
  uint64_t sum = 0, before = 0;
  for (const Portion_shm& portion : s.portions) {
    if (portion.end <= before) continue;
    if (portion.key == key) sum += portion.end - before;
    before = portion.end;
  }
  return sum;
}

// Memory that is held for segments to come, in a file of its own: `size` less what is charged to
// segments with this key, as far as there is any.
struct Reservation_shm {
  Word_shm key;  // 0: free
  uint64_t size;
  int64_t maker_pid;
  uint64_t spare;
};
static_assert(sizeof(Reservation_shm) == 32);

struct Registry_shm {
  Header_shm header;
  uint64_t spare;
  Context_shm contexts[kMaxContexts];
  Segment_shm segments[kMaxSegments];
  Word_shm attachments[kMaxAttachments];  // AttachmentWord; 0 is free
  Reservation_shm reservations[kMaxReservations];
};
static_assert(sizeof(Registry_shm) == 128 + 256 * 32 + 4096 * 128 + 32768 * 8 + 64 * 32);

// An id is the slot's index and the slot's generation: the next segment in the same slot gets
// another id, and the same one comes back after kMaxGeneration segments at the earliest.
inline constexpr uint32_t kIndexBits = 12;
inline constexpr uint32_t kMaxGeneration = (1u << (31 - kIndexBits)) - 1;
static_assert(kMaxSegments == 1u << kIndexBits && kMaxContexts == 256);

constexpr int32_t segment_id(uint32_t index, uint32_t generation) {
  return static_cast<int32_t>(generation << kIndexBits | index);
}
constexpr uint32_t index_of(int32_t id) { return static_cast<uint32_t>(id) & (kMaxSegments - 1); }
constexpr uint32_t generation_of(int32_t id) { return static_cast<uint32_t>(id) >> kIndexBits; }
// Any word that lies in the file gives a valid successor.
constexpr uint32_t next_generation(uint32_t g) { return g % kMaxGeneration + 1; }

enum class SegmentState : uint8_t {
  kFree,     // nothing
  kMaking,   // its file may exist; nobody but the owner knows it; gone if the owner dies
  kLive,     // the file is complete
  kRemoved,  // no new attachments; gone with the last one
};

// A segment's state word: bits 0-30 id, 31 proxy, 32-33 state, 34-39 marks, 40-47 owner's slot.
struct SegmentWord {
  int32_t id = 0;
  SegmentKind kind = SegmentKind::kHome;
  SegmentState state = SegmentState::kFree;
  uint32_t marks = 0;
  uint32_t owner = 0;

  static constexpr uint32_t kMarkBits = 63;
  uint64_t pack() const {
    return static_cast<uint64_t>(id) | static_cast<uint64_t>(kind) << 31 |
           static_cast<uint64_t>(state) << 32 | static_cast<uint64_t>(marks & kMarkBits) << 34 |
           static_cast<uint64_t>(owner) << 40;
  }
  // Nothing when the word is free, or is no word that the slot `index` can have.
  static std::optional<SegmentWord> unpack(uint64_t w, uint32_t index) {
    SegmentWord s;
    s.id = static_cast<int32_t>(w & 0x7fffffff);
    s.kind = (w >> 31 & 1) != 0 ? SegmentKind::kProxy : SegmentKind::kHome;
    s.state = static_cast<SegmentState>(w >> 32 & 3);
    s.marks = w >> 34 & kMarkBits;
    s.owner = w >> 40 & (kMaxContexts - 1);
    if (w >> 48 != 0 || s.state == SegmentState::kFree || index_of(s.id) != index ||
        generation_of(s.id) == 0) {
      return std::nullopt;
    }
    return s;
  }
};

// An attachment's word: bits 0-30 segment id, 31 set, 32-39 context slot.
struct AttachmentWord {
  int32_t id = 0;
  uint32_t context = 0;

  uint64_t pack() const {
    return static_cast<uint64_t>(id) | 1ull << 31 | static_cast<uint64_t>(context) << 32;
  }
  static std::optional<AttachmentWord> unpack(uint64_t w) {
    AttachmentWord a;
    a.id = static_cast<int32_t>(w & 0x7fffffff);
    a.context = static_cast<uint32_t>(w >> 32);
    if ((w >> 31 & 1) == 0 || a.context >= kMaxContexts || generation_of(a.id) == 0) {
      return std::nullopt;
    }
    return a;
  }
};

// The file of a proxy: what other processes of the node need to import it too. Read and written
// with pread and pwrite, so that a damaged file can do no more than fail.
struct Proxy_shm {
  uint64_t magic;
  uint64_t version;  // number of tokens stored so far; token[version & 1] is the valid one
  struct Part {
    uint32_t size;
    std::byte bytes[kMaxBlob];
  } blob, token[2];
};
inline constexpr uint64_t kProxyMagic = 0x3179786f72706dffull;
static_assert(sizeof(Proxy_shm) == 16 + 3 * 1028 + 4);

}  // namespace cmi::node
