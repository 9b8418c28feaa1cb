// Blocks of memory in a segment, handed out and given back by the processes of many nodes, with
// words that swaps alone change.
//
// The segment is cut into a head, regions of equal size, a power of two, and a word for each block.
// A region is given a class, once: the size of its blocks. A block is free, new, kept or leaving.
// New and leaving ones belong to a transaction of a client; its commit is one swap of the client's
// own word, after which new ones are kept and leaving ones free. What a client that is gone had
// committed is finished by sweep_arena(), and what it had not is taken back.
#pragma once

#include <array>
#include <cstddef>

#include "core/locks/words.hpp"

namespace cmi::locks {

inline constexpr uint32_t kArenaClients = 62;
inline constexpr size_t kLeastBlock = 128;

struct ArenaHead {
  uint64_t regions, region_shift;   // numbers
  uint64_t clients[kArenaClients];  // holder, count of its transactions, flag: it is committed
};

// In the caller's own memory; of one thread at a time.
struct Arena {
  static constexpr uint32_t kListed = 64;

  std::byte* memory = nullptr;
  uint32_t regions = 0, region_shift = 0;
  uint32_t client = 0;                       // its word, counted from 1; 0: it has none yet
  uint32_t transaction = 0;                  // count of its word
  uint32_t hint = 0;                         // the region that had room last
  uint32_t changed = 0;                      // blocks of the transaction; the first of them:
  std::array<uint64_t*, kListed> changes{};  // their words
};

// The first to come makes it. kBad: it was made otherwise, or does not fit.
Outcome open_arena(Words& words, Arena* arena, void* memory, size_t size, uint32_t region_shift);
// kDone: a new block, at a multiple of its size, or of a page. kTimedOut: there is no room, or too
// many clients. kBad: size is 0 or more than a region.
Outcome allocate_block(Words& words, Arena* arena, size_t size, void** block);
// kBad: no kept block of this arena, and no new one of this transaction.
Outcome free_block(Words& words, Arena* arena, void* block);
// All of the transaction, or nothing. The next one begins. kNotOwner: the client was declared dead,
// and its transaction taken back.
Outcome commit_arena(Words& words, Arena* arena);
Outcome abort_arena(Words& words, Arena* arena);
// Finishes or takes back what clients that are gone were doing. *blocks: how many.
Outcome sweep_arena(Words& words, Arena* arena, uint64_t* blocks);

}  // namespace cmi::locks
