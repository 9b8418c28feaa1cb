// The hash table in the shared segment: all that lies there, how nodes add to it at the same time,
// how it is read.
//
//   page 0   Layout: where everything is; written once by the home before anybody else looks
//   page 1   number of the next chunk of input, moved by compare-and-swap
//   page 2   where the free part of the arena begins, moved by compare-and-swap
//   then     a page of statistics for each node, written by that node alone
//   then     the buckets, a page each: the offset of the first leaf, changed by compare-and-swap
//   then     the list of chunks
//   then     the arena: blocks that belong to one node each, filled with leaves
//   then     the counts of each node, stored to by that node alone
//
// A leaf holds words of one bucket, sorted by hash: Leaf, keys[words], text_ends[words], text. Once
// it is linked nobody changes it. A word is in one leaf only. Each has a slot in the counts of each
// node, which follows from the place of the leaf. So what many nodes read is cached by all of them,
// what one node changes all the time lies in pages that no other node looks at before the end, and
// only the buckets go back and forth: a swap for each bucket and batch.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "input.hpp"
#include "memory.hpp"

namespace wordcount {

// What one node has counted in one batch of its input.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Batch = std::unordered_map<std::string, uint32_t, TextHash, std::equal_to<>>;

struct Layout {
  uint64_t magic;
  uint64_t nodes;
  uint64_t bucket_bits;
  Offset statistics;
  Offset buckets;
  Offset chunk_ends;  // one word for each chunk: end of its text, counted from chunk_text
  Offset chunk_text;
  uint64_t chunks;
  uint64_t input_bytes;
  Offset arena;
  Offset arena_end;
  Offset counts;       // of node 1
  Offset counts_size;  // of one node; a multiple of the page
  Offset end;
};

struct Leaf {
  Offset next;
  uint32_t words;
  uint32_t text_bytes;
};

// Lies in the segment as it is, one for each node.
struct NodeStatistics {
  uint64_t bytes, words, batches, inserted;
  uint64_t loads, load_misses, stores, store_misses;
  uint64_t written_back, swaps;
  uint64_t lost_chunks, lost_blocks, lost_links;
  uint64_t nanoseconds, merge_nanoseconds;

  [[nodiscard]] uint64_t lost() const { return lost_chunks + lost_blocks + lost_links; }
};

class SharedTable {
 public:
  // Bytes that a segment for this input needs.
  static size_t segment_size(const Plan& plan, unsigned nodes);
  // The home lays out a segment of zeros.
  static SharedTable create(SharedMemory& memory, const Plan& plan, unsigned nodes);
  // Any node; `node` is 1 at the home.
  SharedTable(SharedMemory& memory, unsigned node);

  // Takes the next chunk that no node has taken; false when there is none.
  bool take_chunk(Chunk& chunk);

  // Adds a batch to the table. Others merge at the same time. `pause` is called between buckets.
  void merge(const Batch& batch, const std::function<void()>& pause);

  // Every word with its count over all nodes, by plain loads.
  void for_each(const std::function<void(std::string_view word, uint64_t count)>& use);

  // Bytes of the segment that are in use, blocks that are not full included.
  uint64_t bytes_used();

  void store_statistics(const NodeStatistics& statistics);
  NodeStatistics load_statistics(unsigned node);

  [[nodiscard]] const Layout& layout() const { return layout_; }
  // Running numbers of this node: inserted and the lost swaps are kept here.
  NodeStatistics statistics{};

 private:
  // A word of the batch on its way into the table.
  struct Word {
    uint64_t hash;
    std::string_view text;
    uint32_t count;
    bool merged;
    [[nodiscard]] uint32_t key() const { return static_cast<uint32_t>(hash); }
  };
  // A leaf in the segment, its arrays in place.
  struct LeafView {
    Leaf leaf;
    std::span<const uint32_t> keys;
    Offset text_ends, text;
  };

  // What this node has counted of a word, until it is added to the counts.
  struct Counted {
    uint64_t slot;
    uint32_t count;
  };

  LeafView view(Offset leaf);
  [[nodiscard]] uint64_t first_slot(Offset leaf) const;
  [[nodiscard]] Offset count_at(unsigned node, uint64_t slot) const;
  std::string_view text_of(const LeafView& leaf, size_t index);
  void merge_bucket(Offset bucket, std::span<Word> words);
  void count_in_leaf(Offset leaf, std::span<Word> words);
  void add_counts();
  Offset allocate(size_t bytes);
  size_t build_leaf(std::span<const Word> words, Offset next);

  SharedMemory& memory_;
  Layout layout_{};
  unsigned node_;
  uint64_t chunk_guess_ = 0;  // last value seen of the word on page 1
  Offset arena_guess_ = 0;    // last value seen of the word on page 2
  Offset block_ = 0;          // free part of this node's current block
  Offset block_end_ = 0;
  std::vector<char> scratch_;     // a leaf before it is stored
  std::vector<Counted> counted_;  // of the batch that is being merged
};

}  // namespace wordcount
