// A queue of items of one size between many producers and consumers, in the order of coming. A cell
// has a word and an item; the word goes through empty, being filled, full, being emptied, and to
// empty of the next turn. Who fills or empties is its holder. Each claims the first cell that is
// not claimed, which the words alone say, so that there is no counter that a death leaves behind.
//
// Where a producer is gone that was filling a cell, its item was never put in, and the cell is free
// for the next turn. Where a consumer is gone that was emptying one, the item is still there: who
// waits for items takes it over, or the producer that comes to the cell leaves it as the next one.
#pragma once

#include <cstddef>

#include "core/locks/words.hpp"

namespace cmi::locks {

// In the caller's own memory; of one thread. What lies in shared memory says nothing about sizes.
struct QueueHandle {
  std::byte* memory;  // 8 bytes of head, then the cells
  uint32_t cells, item_size;
  uint64_t put, taken;  // places below which all cells have been claimed, by producers, consumers
};

inline constexpr uint32_t kMostCells = 1U << 16, kMostItemBytes = 1U << 16;

// 0: no such queue.
size_t queue_bytes(uint32_t cells, uint32_t item_size);
// The first to come makes it. kBad: it was made with other sizes.
Outcome open_queue(Words& words, QueueHandle* queue, void* memory, uint32_t cells,
                   uint32_t item_size);
// kDone; kOwnerDead: nothing was done, a producer that was filling the next cell is gone; call
// again. kTimedOut: the queue was full, or empty, all the time.
Outcome push_item(Words& words, QueueHandle* queue, const void* item, Nanos span);
Outcome pop_item(Words& words, QueueHandle* queue, void* item, Nanos span);

}  // namespace cmi::locks
