// Many words are linked with one compare-and-swap, since one costs a round trip to the home and
// makes other nodes fetch again what they have cached. It publishes the leaf that was stored before
// it, so there is no barrier before; and it is small with that, since the counts are stored when
// all leaves of a batch are linked.
#include "table.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace wordcount {
namespace {

constexpr uint64_t kMagic = 0x776f726473303031;
constexpr size_t kPage = 4096;
constexpr Offset kNextChunk = 1 * kPage;
constexpr Offset kFreeArena = 2 * kPage;
constexpr Offset kFirstFree = 3 * kPage;
constexpr uint64_t kBucketBits = 6;
constexpr size_t kBlock = 128 * 1024;

static_assert(sizeof(Layout) <= kPage && sizeof(Leaf) == 16);
static_assert(sizeof(NodeStatistics) <= kPage && sizeof(NodeStatistics) % 8 == 0);

constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// FNV-1a with a final mix: the same on every machine, which std::hash need not be.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash ^= hash >> 32;
  hash *= 0xd6e8feb86659fd93;
  return hash ^ (hash >> 32);
}

// A word of a leaf takes more than this, so that slots of two leaves never meet.
constexpr size_t kSlotBytes = 2 * sizeof(uint32_t);

size_t leaf_bytes(size_t words, size_t text_bytes) {
  return round_up(sizeof(Leaf) + words * 2 * sizeof(uint32_t) + text_bytes, 8);
}

// Of one node.
uint64_t counts_bytes(uint64_t arena_bytes) {
  return round_up(arena_bytes / kSlotBytes * sizeof(uint32_t), kPage);
}

}  // namespace

size_t SharedTable::segment_size(const Plan& plan, unsigned nodes) {
  size_t list = 0;
  for (const Chunk& chunk : plan.chunks) list += encode_chunk(chunk).size() + 8;
  // Text of the usual kind needs an eighth of its size for its different words. Where that is not
  // enough, the run ends with a message.
  const uint64_t arena = plan.bytes / 4 + 2 * kBlock * nodes + 1024 * 1024;
  return round_up(kFirstFree + (kPage << kBucketBits) + list + arena +
                      nodes * (counts_bytes(arena) + 2 * kPage),
                  1024 * 1024);
}

SharedTable SharedTable::create(SharedMemory& memory, const Plan& plan, unsigned nodes) {
  std::string text;
  std::vector<uint64_t> ends;
  for (const Chunk& chunk : plan.chunks) {
    text += encode_chunk(chunk);
    ends.push_back(text.size());
  }
  Layout layout{};
  layout.magic = kMagic;
  layout.nodes = nodes;
  layout.bucket_bits = kBucketBits;
  layout.statistics = kFirstFree;
  layout.buckets = layout.statistics + nodes * kPage;
  layout.chunk_ends = layout.buckets + (kPage << kBucketBits);
  layout.chunk_text = layout.chunk_ends + ends.size() * sizeof(uint64_t);
  layout.chunks = ends.size();
  layout.input_bytes = plan.bytes;
  layout.arena = round_up(layout.chunk_text + text.size(), kPage);
  layout.end = memory.size();
  // The rest: a half of the arena's size for the counts of each node, and what rounding takes.
  const uint64_t before = layout.arena + nodes * kPage;
  if (before < layout.end)
    layout.arena_end = layout.arena + (layout.end - before) * 2 / (2 + nodes) / kPage * kPage;
  layout.counts = layout.arena_end;
  layout.counts_size = counts_bytes(layout.arena_end - layout.arena);
  if (layout.arena_end <= layout.arena) fail("the segment is too small for the list of files");
  memory.write(layout.chunk_ends, ends.data(), ends.size() * sizeof(uint64_t));
  memory.write(layout.chunk_text, text.data(), text.size());
  memory.store<uint64_t>(kFreeArena, layout.arena);
  memory.write(0, &layout, sizeof(layout));
  memory.publish();
  return {memory, 1};
}

SharedTable::SharedTable(SharedMemory& memory, unsigned node) : memory_(memory), node_(node) {
  layout_ = memory.read<Layout>(0, 1).front();
  if (layout_.magic != kMagic || layout_.end != memory.size())
    fail("there is no table in the segment");
  arena_guess_ = layout_.arena;
}

// The word is not loaded first: the load would fetch a page nearly every time, while a swap that is
// lost costs no more and tells the value as well.
bool SharedTable::take_chunk(Chunk& chunk) {
  while (chunk_guess_ < layout_.chunks) {
    const uint64_t mine = chunk_guess_;
    if (!memory_.compare_and_swap(kNextChunk, chunk_guess_, mine + 1)) {
      statistics.lost_chunks++;
      continue;
    }
    chunk_guess_ = mine + 1;
    const Offset ends = layout_.chunk_ends + mine * sizeof(uint64_t);
    const uint64_t begin =
        mine == 0 ? 0 : memory_.read<uint64_t>(ends - sizeof(uint64_t), 1).front();
    const uint64_t end = memory_.read<uint64_t>(ends, 1).front();
    chunk = decode_chunk(memory_.read_text(layout_.chunk_text + begin, end - begin));
    return true;
  }
  return false;
}

Offset SharedTable::allocate(size_t bytes) {
  if (block_end_ - block_ < bytes) {
    const size_t size = round_up(bytes, kBlock);
    for (;;) {
      if (arena_guess_ + size > layout_.arena_end) fail("the segment is full; see --segment");
      const Offset begin = arena_guess_;
      if (memory_.compare_and_swap(kFreeArena, arena_guess_, begin + size)) {
        block_ = begin;
        block_end_ = arena_guess_ = begin + size;
        break;
      }
      statistics.lost_blocks++;
    }
  }
  const Offset begin = block_;
  block_ += bytes;
  return begin;
}

SharedTable::LeafView SharedTable::view(Offset offset) {
  LeafView leaf{};
  leaf.leaf = memory_.read<Leaf>(offset, 1).front();
  const size_t words = leaf.leaf.words;
  leaf.keys = memory_.read<uint32_t>(offset + sizeof(Leaf), words);
  leaf.text_ends = offset + sizeof(Leaf) + words * sizeof(uint32_t);
  leaf.text = leaf.text_ends + words * sizeof(uint32_t);
  return leaf;
}

std::string_view SharedTable::text_of(const LeafView& leaf, size_t index) {
  const Offset ends = leaf.text_ends + index * sizeof(uint32_t);
  const uint32_t begin =
      index == 0 ? 0 : memory_.read<uint32_t>(ends - sizeof(uint32_t), 1).front();
  const uint32_t end = memory_.read<uint32_t>(ends, 1).front();
  if (begin > end || end > leaf.leaf.text_bytes)
    fail("the leaf with its text at {} is damaged", leaf.text);
  return memory_.read_text(leaf.text + begin, end - begin);
}

uint64_t SharedTable::first_slot(Offset leaf) const { return (leaf - layout_.arena) / kSlotBytes; }

Offset SharedTable::count_at(unsigned node, uint64_t slot) const {
  return layout_.counts + (node - 1) * layout_.counts_size + slot * sizeof(uint32_t);
}

// Counts those words that the leaf holds, and marks them. Both are sorted by key.
void SharedTable::count_in_leaf(Offset offset, std::span<Word> words) {
  const LeafView leaf = view(offset);
  size_t first = 0;
  for (size_t i = 0; i < leaf.keys.size(); i++) {
    while (first < words.size() && words[first].key() < leaf.keys[i]) first++;
    for (size_t w = first; w < words.size() && words[w].key() == leaf.keys[i]; w++) {
      if (words[w].merged || text_of(leaf, i) != words[w].text) continue;
      counted_.push_back({first_slot(offset) + i, words[w].count});
      words[w].merged = true;
    }
  }
}

// In the order of memory, each page once.
void SharedTable::add_counts() {
  std::sort(counted_.begin(), counted_.end(),
            [](const Counted& a, const Counted& b) { return a.slot < b.slot; });
  for (const Counted& word : counted_) {
    const Offset at = count_at(node_, word.slot);
    memory_.store<uint32_t>(at, memory_.load<uint32_t>(at) + word.count);
  }
  counted_.clear();
}

// Puts the words that are not merged yet into scratch_ as a leaf; returns its size.
size_t SharedTable::build_leaf(std::span<const Word> words, Offset next) {
  Leaf leaf = {.next = next, .words = 0, .text_bytes = 0};
  for (const Word& word : words) {
    if (word.merged) continue;
    leaf.words++;
    leaf.text_bytes += static_cast<uint32_t>(word.text.size());
  }
  const size_t size = leaf_bytes(leaf.words, leaf.text_bytes);
  scratch_.assign(size, 0);
  std::memcpy(scratch_.data(), &leaf, sizeof(leaf));
  char* key = scratch_.data() + sizeof(Leaf);
  char* text_end = key + leaf.words * sizeof(uint32_t);
  char* const text = text_end + leaf.words * sizeof(uint32_t);
  uint32_t length = 0;
  const auto append = [](char*& at, uint32_t value) {
    std::memcpy(at, &value, sizeof(value));
    at += sizeof(value);
  };
  for (const Word& word : words) {
    if (word.merged) continue;
    std::memcpy(text + length, word.text.data(), word.text.size());
    length += static_cast<uint32_t>(word.text.size());
    append(key, word.key());
    append(text_end, length);
  }
  return size;
}

// What other nodes have linked since this one looked lies in front of what it has seen. A lost swap
// means that there is more of it: words that are in there now leave our leaf, which nobody can see
// yet.
void SharedTable::merge_bucket(Offset bucket, std::span<Word> words) {
  Offset head = memory_.load<Offset>(bucket);
  Offset seen = 0;
  Offset place = 0;
  for (;;) {
    for (Offset leaf = head; leaf != seen; leaf = memory_.read<Offset>(leaf, 1).front()) {
      if (leaf < layout_.arena) fail("bucket {} leads out of the arena, to {}", bucket, leaf);
      count_in_leaf(leaf, words);
    }
    seen = head;
    const auto fresh = static_cast<uint64_t>(
        std::count_if(words.begin(), words.end(), [](const Word& word) { return !word.merged; }));
    if (fresh == 0) return;
    const size_t size = build_leaf(words, head);
    if (place == 0) place = allocate(size);
    memory_.write(place, scratch_.data(), size);
    // The leaf is at the home before the swap is made.
    if (memory_.compare_and_swap(bucket, head, place)) {
      statistics.inserted += fresh;
      uint64_t slot = first_slot(place);
      for (const Word& word : words) {
        if (!word.merged) counted_.push_back({slot++, word.count});
      }
      return;
    }
    statistics.lost_links++;
  }
}

void SharedTable::merge(const Batch& batch, const std::function<void()>& pause) {
  std::vector<Word> words;
  words.reserve(batch.size());
  for (const auto& [text, count] : batch) words.push_back({hash_of(text), text, count, false});
  const unsigned shift = 64 - static_cast<unsigned>(layout_.bucket_bits);
  // By bucket, then by key: one pass over the buckets, in which each page is used once.
  std::sort(words.begin(), words.end(), [&](const Word& a, const Word& b) {
    if (a.hash >> shift != b.hash >> shift) return a.hash < b.hash;
    return a.key() != b.key() ? a.key() < b.key() : a.text < b.text;
  });
  for (size_t begin = 0; begin < words.size();) {
    const uint64_t bucket = words[begin].hash >> shift;
    size_t end = begin;
    while (end < words.size() && words[end].hash >> shift == bucket) end++;
    merge_bucket(layout_.buckets + bucket * kPage, std::span(words).subspan(begin, end - begin));
    begin = end;
    pause();
  }
  add_counts();
}

void SharedTable::for_each(const std::function<void(std::string_view, uint64_t)>& use) {
  const uint64_t buckets = uint64_t{1} << layout_.bucket_bits;
  for (uint64_t bucket = 0; bucket < buckets; bucket++) {
    Offset at = memory_.load<Offset>(layout_.buckets + bucket * kPage);
    while (at != 0) {
      const LeafView leaf = view(at);
      const size_t words = leaf.keys.size();
      for (size_t i = 0; i < words; i++) {
        uint64_t count = 0;
        for (unsigned node = 1; node <= layout_.nodes; node++) {
          count += memory_.load<uint32_t>(count_at(node, first_slot(at) + i));
        }
        use(text_of(leaf, i), count);
      }
      at = leaf.leaf.next;
    }
  }
}

uint64_t SharedTable::bytes_used() { return memory_.load<uint64_t>(kFreeArena); }

void SharedTable::store_statistics(const NodeStatistics& numbers) {
  memory_.write(layout_.statistics + (node_ - 1) * kPage, &numbers, sizeof(numbers));
}

NodeStatistics SharedTable::load_statistics(unsigned node) {
  return memory_.read<NodeStatistics>(layout_.statistics + (node - 1) * kPage, 1).front();
}

}  // namespace wordcount
