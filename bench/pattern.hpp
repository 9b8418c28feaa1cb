// What is stored in the pages that are measured, so that both ends can tell whether the other's
// stores arrived. Pure.
#pragma once

#include <cstring>

#include "util.hpp"

namespace bench {

enum class Pattern : uint64_t {
  kHome,     // word 0 of each page, stored by the home
  kWord,     // word 1 of each page, stored by the importer
  kDense,    // every word of the page; each byte differs between successive versions
  kStriped,  // byte 0 of each word, the others are left alone
};

inline uint64_t stamp(uint64_t page, uint64_t version) {
  return (page + 1) * 0x9e3779b97f4a7c15u + version;
}

// No two successive versions share a byte: the low nibble of every byte counts.
inline uint64_t dense_word(uint64_t version) { return (version % 15 + 1) * 0x0101010101010101u; }

inline void store(std::byte* page, uint64_t index, Pattern pattern, uint64_t version) {
  auto* words = reinterpret_cast<volatile uint64_t*>(page);
  auto* bytes = reinterpret_cast<volatile uint8_t*>(page);
  switch (pattern) {
    case Pattern::kHome:
      words[0] = stamp(index, version);
      break;
    case Pattern::kWord:
      words[1] = stamp(index, version);
      break;
    case Pattern::kDense:
      for (size_t i = 0; i < kPage / 8; ++i) words[i] = dense_word(version);
      break;
    case Pattern::kStriped:
      for (size_t i = 0; i < kPage; i += 8) bytes[i] = static_cast<uint8_t>(version);
      break;
  }
}

inline bool holds(const std::byte* page, uint64_t index, Pattern pattern, uint64_t version) {
  auto* words = reinterpret_cast<const volatile uint64_t*>(page);
  auto* bytes = reinterpret_cast<const volatile uint8_t*>(page);
  switch (pattern) {
    case Pattern::kHome:
      return words[0] == stamp(index, version);
    case Pattern::kWord:
      return words[1] == stamp(index, version);
    case Pattern::kDense:
      for (size_t i = 0; i < kPage / 8; ++i) {
        if (words[i] != dense_word(version)) return false;
      }
      return true;
    case Pattern::kStriped:
      for (size_t i = 0; i < kPage; i += 8) {
        if (bytes[i] != static_cast<uint8_t>(version)) return false;
      }
      return true;
  }
  return false;
}

}  // namespace bench
