// Which text is counted, cut into chunks that a node takes whole, and what a word is.
// Knows nothing of shared memory: the single-process count uses it in the same way.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace wordcount {

// A part of a file that begins and ends between two words.
struct Piece {
  std::string path;
  uint64_t offset = 0;
  uint64_t length = 0;
};

using Chunk = std::vector<Piece>;

struct Plan {
  std::vector<Chunk> chunks;
  uint64_t bytes = 0;
  uint64_t files = 0;
};

// All regular text files below the given files and folders in sorted order, up to `limit` bytes (0:
// all of them). Left out: *.gz, files with a NUL byte near the start, what cannot be read, what
// links point to.
Plan make_plan(const std::vector<std::string>& paths, uint64_t limit, unsigned nodes);

// One line for each piece, and back.
std::string encode_chunk(const Chunk& chunk);
Chunk decode_chunk(std::string_view text);

// The bytes of a piece, in `text`; fails if the file has become shorter or is not the same on this
// machine.
void read_piece(const Piece& piece, std::string& text);

// A word is a longest possible [A-Za-z_][A-Za-z0-9_]* of ASCII; of a longer one the first 63 bytes
// count.
inline constexpr size_t kLongestWord = 63;

inline constexpr std::array<bool, 256> kInWord = [] {
  std::array<bool, 256> in_word{};
  for (unsigned c = 'a'; c <= 'z'; c++) in_word[c] = in_word[c - 'a' + 'A'] = true;
  for (unsigned c = '0'; c <= '9'; c++) in_word[c] = true;
  in_word['_'] = true;
  return in_word;
}();

// Calls use(std::string_view) for every word.
template <typename Use>
void for_each_word(std::string_view text, Use&& use) {
  const auto in_word = [](char c) { return kInWord[static_cast<unsigned char>(c)]; };
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    if (!in_word(*at) || (*at >= '0' && *at <= '9')) {
      at++;
      continue;
    }
    const char* const begin = at;
    while (at < end && in_word(*at)) at++;
    use(std::string_view(begin, at).substr(0, kLongestWord));
  }
}

}  // namespace wordcount
