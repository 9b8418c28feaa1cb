#include "core/locks/arena.hpp"

#include <bit>

#include "core/locks/number.hpp"

namespace cmi::locks {

namespace {

constexpr uint32_t kLeastShift = 7, kMostShift = 30, kPageShift = 12;
static_assert(kLeastBlock == size_t{1} << kLeastShift);
constexpr uint64_t kMostRegions = 1U << 20;

// States of a block, by `flag` and `held`: free, kept (held), new (both), leaving (flag).
struct Block : Word {
  bool is_free() const { return !flag && !held; }
  bool is_kept() const { return !flag && held; }
  bool is_new() const { return flag && held; }
  bool pending() const { return flag; }
};
bool parse_block(uint64_t raw, Block* block) {
  return Word::parse(raw, Kind::kBlock, block) && block->pending() == (block->holder != 0) &&
         block->holder <= kArenaClients;
}
bool parse_client(uint64_t raw, Word* word) {
  return Word::parse(raw, Kind::kClient, word) && word->held == (word->holder != 0);
}

size_t head_bytes(uint64_t regions) {
  const size_t bytes = sizeof(ArenaHead) + regions * sizeof(uint64_t);
  return (bytes + (size_t{1} << kPageShift) - 1) >> kPageShift << kPageShift;
}
size_t words_of_region(uint32_t shift) { return size_t{1} << (shift - kLeastShift); }
size_t arena_bytes(uint64_t regions, uint32_t shift) {
  return head_bytes(regions) +
         regions * ((size_t{1} << shift) + words_of_region(shift) * sizeof(uint64_t));
}

ArenaHead* head_of(const Arena& a) { return reinterpret_cast<ArenaHead*>(a.memory); }
uint64_t* region_word(const Arena& a, uint32_t region) {
  return reinterpret_cast<uint64_t*>(a.memory + sizeof(ArenaHead)) + region;
}
std::byte* region_at(const Arena& a, uint32_t region) {
  return a.memory + head_bytes(a.regions) + (size_t{region} << a.region_shift);
}
uint64_t* block_words(const Arena& a, uint32_t region) {
  return reinterpret_cast<uint64_t*>(region_at(a, a.regions)) +
         region * words_of_region(a.region_shift);
}
uint64_t* client_word(const Arena& a) { return &head_of(a)->clients[a.client - 1]; }

// The class of a region: a shift, 0 for none yet. False: no such class.
bool class_of(Words& words, const Arena& a, uint32_t region, uint32_t* shift) {
  Word word;
  if (!Word::parse(words.load(region_word(a, region)), Kind::kRegion, &word)) return false;
  *shift = word.count;
  return word.holder == 0 && !word.flag && !word.held &&
         (word.count == 0 || (word.count >= kLeastShift && word.count <= a.region_shift));
}

// What becomes of a block when its transaction ends.
Block ended(const Block& block, bool committed) {
  Block next;
  next.count = block.count + 1;
  next.held = block.is_new() == committed;
  return next;
}

void note(Arena* a, uint64_t* word) {
  if (a->changed < Arena::kListed) a->changes[a->changed] = word;
  ++a->changed;
}

// Visits the words of all blocks, until one visit is not kDone.
template <class Visit>
Outcome each_block(Words& words, const Arena& a, Visit visit) {
  for (uint32_t region = 0; region < a.regions; ++region) {
    uint32_t shift = 0;
    if (!class_of(words, a, region, &shift)) return Outcome::kBad;
    if (shift == 0) continue;
    for (size_t i = 0; i < size_t{1} << (a.region_shift - shift); ++i) {
      uint64_t* const at = block_words(a, region) + i;
      const uint64_t raw = words.load(at);
      Block block;
      if (!parse_block(raw, &block)) return Outcome::kBad;
      const Outcome o = visit(at, raw, block);
      if (o != Outcome::kDone) return o;
    }
  }
  return Outcome::kDone;
}

// Ends a block's part in a transaction. Another one may have done it.
Outcome end_block(Words& words, uint64_t* at, uint64_t raw, const Block& block, bool committed) {
  const Outcome o = replace(words, at, raw, ended(block, committed).raw(Kind::kBlock));
  return o == Outcome::kTimedOut ? Outcome::kDone : o;
}

// Ends all blocks of a client's present transaction.
Outcome end_blocks_of(Words& words, const Arena& a, uint32_t client, bool committed,
                      uint64_t* blocks) {
  return each_block(words, a, [&](uint64_t* at, uint64_t raw, const Block& block) {
    if (!block.pending() || block.holder != client) return Outcome::kDone;
    ++*blocks;
    return end_block(words, at, raw, block, committed);
  });
}

// A word for a client that has none. kTimedOut: all are taken.
Outcome become_client(Words& words, Arena* a) {
  if (a->client != 0) return Outcome::kDone;
  for (uint32_t i = 0; i < kArenaClients; ++i) {
    uint64_t* const at = &head_of(*a)->clients[i];
    const uint64_t raw = words.load(at);
    Word word;
    if (!parse_client(raw, &word)) return Outcome::kBad;
    if (word.held) continue;
    const Word mine{words.self(), word.count + 1, false, true};
    const Outcome o = replace(words, at, raw, mine.raw(Kind::kClient));
    if (o == Outcome::kFailed) return o;
    if (o != Outcome::kDone) continue;
    a->client = i + 1;
    a->transaction = mine.count % Word::kCounts;
    return o;
  }
  return Outcome::kTimedOut;
}

// A free block of a region of that class becomes new. kTimedOut: it has none.
Outcome take_in_region(Words& words, Arena* a, uint32_t region, uint32_t shift, void** block) {
  for (size_t i = 0; i < size_t{1} << (a->region_shift - shift); ++i) {
    uint64_t* const at = block_words(*a, region) + i;
    const uint64_t raw = words.load(at);
    Block found;
    if (!parse_block(raw, &found)) return Outcome::kBad;
    if (!found.is_free()) continue;
    const Word mine{a->client, found.count + 1, true, true};
    const Outcome o = replace(words, at, raw, mine.raw(Kind::kBlock));
    if (o == Outcome::kFailed) return o;
    if (o != Outcome::kDone) continue;
    note(a, at);
    a->hint = region;
    *block = region_at(*a, region) + (i << shift);
    return o;
  }
  return Outcome::kTimedOut;
}

Outcome end_transaction(Words& words, Arena* a, bool committed) {
  if (a->client == 0 || a->changed == 0) return Outcome::kDone;
  uint64_t* const own = client_word(*a);
  const Word present{words.self(), a->transaction, false, true};
  Word decided = present;
  decided.flag = committed;
  Outcome o = committed
                  ? replace(words, own, present.raw(Kind::kClient), decided.raw(Kind::kClient))
                  : Outcome::kDone;
  if (o != Outcome::kDone) return o == Outcome::kTimedOut ? Outcome::kNotOwner : o;
  uint64_t blocks = 0;
  if (a->changed > Arena::kListed) {
    o = end_blocks_of(words, *a, a->client, committed, &blocks);
  } else {
    for (uint32_t i = 0; i < a->changed && o == Outcome::kDone; ++i) {
      const uint64_t raw = words.load(a->changes[i]);
      Block block;
      if (!parse_block(raw, &block)) return Outcome::kBad;
      if (!block.pending() || block.holder != a->client) continue;
      o = end_block(words, a->changes[i], raw, block, committed);
    }
  }
  if (o != Outcome::kDone) return o;
  const Word next{present.holder, a->transaction + 1, false, true};
  o = replace(words, own, decided.raw(Kind::kClient), next.raw(Kind::kClient));
  if (o != Outcome::kDone) return o == Outcome::kTimedOut ? Outcome::kNotOwner : o;
  a->transaction = next.count % Word::kCounts;
  a->changed = 0;
  return o;
}

}  // namespace

Outcome open_arena(Words& words, Arena* arena, void* memory, size_t size, uint32_t region_shift) {
  if (region_shift < kPageShift || region_shift > kMostShift) return Outcome::kBad;
  uint64_t regions = size >> region_shift;
  while (regions != 0 && arena_bytes(regions, region_shift) > size) --regions;
  if (regions == 0 || regions > kMostRegions) return Outcome::kBad;
  *arena = {};
  arena->memory = static_cast<std::byte*>(memory);
  arena->regions = static_cast<uint32_t>(regions);
  arena->region_shift = region_shift;
  const Outcome o = make_number(words, &head_of(*arena)->regions, Kind::kRegions, regions);
  if (o != Outcome::kDone) return o;
  return make_number(words, &head_of(*arena)->region_shift, Kind::kRegions, region_shift);
}

Outcome allocate_block(Words& words, Arena* arena, size_t size, void** block) {
  if (size == 0 || size > size_t{1} << arena->region_shift) return Outcome::kBad;
  const Outcome client = become_client(words, arena);
  if (client != Outcome::kDone) return client;
  const size_t least = size < kLeastBlock ? kLeastBlock : size;
  const auto wanted = static_cast<uint32_t>(std::bit_width(least - 1));
  for (uint32_t i = 0; i < arena->regions; ++i) {
    const uint32_t region = (arena->hint + i) % arena->regions;
    uint32_t shift = 0;
    if (!class_of(words, *arena, region, &shift)) return Outcome::kBad;
    if (shift == 0) {
      const uint64_t classed = Word{0, wanted, false, false}.raw(Kind::kRegion);
      if (replace(words, region_word(*arena, region), 0, classed) == Outcome::kFailed) {
        return Outcome::kFailed;
      }
      if (!class_of(words, *arena, region, &shift)) return Outcome::kBad;
    }
    if (shift != wanted) continue;
    const Outcome o = take_in_region(words, arena, region, shift, block);
    if (o != Outcome::kTimedOut) return o;
  }
  return Outcome::kTimedOut;
}

Outcome free_block(Words& words, Arena* arena, void* block) {
  const Outcome client = become_client(words, arena);
  if (client != Outcome::kDone) return client;
  const std::byte* const first = region_at(*arena, 0);
  const auto offset = static_cast<size_t>(static_cast<std::byte*>(block) - first);
  const size_t region = offset >> arena->region_shift;
  if (static_cast<std::byte*>(block) < first || region >= arena->regions) return Outcome::kBad;
  const size_t in_region = offset & ((size_t{1} << arena->region_shift) - 1);
  uint32_t shift = 0;
  if (!class_of(words, *arena, static_cast<uint32_t>(region), &shift) || shift == 0 ||
      in_region % (size_t{1} << shift) != 0) {
    return Outcome::kBad;
  }
  uint64_t* const at = block_words(*arena, static_cast<uint32_t>(region)) + (in_region >> shift);
  const uint64_t raw = words.load(at);
  Block found;
  if (!parse_block(raw, &found)) return Outcome::kBad;
  const bool own = found.is_new() && found.holder == arena->client;
  if (!own && !found.is_kept()) return Outcome::kBad;
  const Word next =
      own ? Word(ended(found, false)) : Word{arena->client, found.count + 1, true, false};
  const Outcome o = replace(words, at, raw, next.raw(Kind::kBlock));
  if (o == Outcome::kDone && !own) note(arena, at);
  return o == Outcome::kTimedOut ? Outcome::kBad : o;
}

Outcome commit_arena(Words& words, Arena* arena) { return end_transaction(words, arena, true); }
Outcome abort_arena(Words& words, Arena* arena) { return end_transaction(words, arena, false); }

Outcome sweep_arena(Words& words, Arena* arena, uint64_t* blocks) {
  *blocks = 0;
  for (uint32_t i = 0; i < kArenaClients; ++i) {
    uint64_t* const at = &head_of(*arena)->clients[i];
    const uint64_t raw = words.load(at);
    Word word;
    if (!parse_client(raw, &word)) return Outcome::kBad;
    if (!word.held || words.gone(word.holder) <= 0) continue;
    const Outcome o = end_blocks_of(words, *arena, i + 1, word.flag, blocks);
    if (o != Outcome::kDone) return o;
    // Its word is another client's only when no block names it any more.
    const Word free{0, word.count, false, false};
    if (replace(words, at, raw, free.raw(Kind::kClient)) == Outcome::kFailed) {
      return Outcome::kFailed;
    }
  }
  return Outcome::kDone;
}

}  // namespace cmi::locks
