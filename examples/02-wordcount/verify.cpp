// The reader of the table and its judge.
#include "verify.hpp"

#include <algorithm>
#include <unordered_map>

namespace wordcount {
namespace {

constexpr size_t kShown = 20;
constexpr size_t kDifferencesShown = 10;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

std::vector<Entry> read_table(SharedMemory& memory, SharedTable& table, const Say& say) {
  const auto start = Clock::now();
  const uint64_t loads = memory.loads();
  const uint64_t misses = memory.library_counters().load_misses;
  std::vector<Entry> entries;
  table.for_each([&](std::string_view word, uint64_t count) {
    entries.push_back({std::string(word), count});
  });
  say(fmt::format("{} read {} words from the table in {:.2f} s: {} loads, {} of them misses", self,
                  entries.size(), seconds_since(start), memory.loads() - loads,
                  memory.library_counters().load_misses - misses));

  std::vector<const Entry*> order;
  order.reserve(entries.size());
  for (const Entry& entry : entries) order.push_back(&entry);
  const auto shown = static_cast<ptrdiff_t>(std::min(kShown, order.size()));
  std::partial_sort(order.begin(), order.begin() + shown, order.end(),
                    [](const Entry* a, const Entry* b) {
                      return a->count != b->count ? a->count > b->count : a->word < b->word;
                    });
  say("most frequent words:");
  for (ptrdiff_t i = 0; i < shown; i++)
    say(fmt::format("{:>10}  {}", order[i]->count, order[i]->word));
  return entries;
}

std::vector<Chunk> read_plan(SharedMemory& memory, const Layout& layout) {
  std::vector<Chunk> chunks;
  uint64_t begin = 0;
  for (const uint64_t end : memory.read<uint64_t>(layout.chunk_ends, layout.chunks)) {
    chunks.push_back(decode_chunk(memory.read_text(layout.chunk_text + begin, end - begin)));
    begin = end;
  }
  return chunks;
}

Verdict count_alone_and_compare(const std::vector<Chunk>& chunks, const std::vector<Entry>& entries,
                                const Say& say) {
  struct Counted {
    uint64_t count = 0;
    bool found = false;
  };
  std::unordered_map<std::string, Counted, TextHash, std::equal_to<>> alone;
  const auto start = Clock::now();
  std::string text;
  for (const Chunk& chunk : chunks) {
    for (const Piece& piece : chunk) {
      read_piece(piece, text);
      for_each_word(text, [&](std::string_view word) {
        auto at = alone.find(word);
        if (at == alone.end()) at = alone.emplace(std::string(word), Counted()).first;
        at->second.count++;
      });
    }
  }
  Verdict verdict = {.identical = true, .seconds = seconds_since(start)};

  size_t differences = 0;
  const auto differs = [&](std::string_view word, std::string_view how) {
    if (++differences <= kDifferencesShown) say(fmt::format("differs: '{}': {}", word, how));
  };
  for (const Entry& entry : entries) {
    const auto at = alone.find(entry.word);
    if (at == alone.end()) {
      differs(entry.word,
              fmt::format("counted {} times in the table, not in the input", entry.count));
      continue;
    }
    if (at->second.found) differs(entry.word, "twice in the table");
    if (at->second.count != entry.count) {
      differs(entry.word, fmt::format("counted {} times in the table, {} times alone", entry.count,
                                      at->second.count));
    }
    at->second.found = true;
  }
  for (const auto& [word, counted] : alone) {
    if (!counted.found)
      differs(word, fmt::format("not in the table, counted {} times alone", counted.count));
  }
  verdict.identical = differences == 0;
  say(fmt::format("compared {} entries with {} of a count in one process: {} differences",
                  entries.size(), alone.size(), differences));
  return verdict;
}

}  // namespace wordcount
