// What one node does at the end: reads the whole shared table with plain loads, then, with the
// segment closed, counts the same input in an ordinary map and compares every entry. Reports in
// lines that go to the home.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "input.hpp"
#include "table.hpp"

namespace wordcount {

using Say = std::function<void(std::string_view line)>;

struct Entry {
  std::string word;
  uint64_t count;
};

// Also says which words are the most frequent ones.
std::vector<Entry> read_table(SharedMemory& memory, SharedTable& table, const Say& say);

// The whole input, in order.
std::vector<Chunk> read_plan(SharedMemory& memory, const Layout& layout);

struct Verdict {
  bool identical;
  double seconds;  // of the count alone
};
Verdict count_alone_and_compare(const std::vector<Chunk>& chunks, const std::vector<Entry>& entries,
                                const Say& say);

}  // namespace wordcount
