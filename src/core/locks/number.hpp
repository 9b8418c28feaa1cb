// A word that holds a number: how many permits, parties or cells there are.
#pragma once

#include "core/locks/words.hpp"

namespace cmi::locks {

// Stores a number where there is none yet. kBad: there is another one.
inline Outcome make_number(Words& words, uint64_t* at, Kind kind, uint64_t number) {
  uint64_t found = 0;
  const uint64_t made = Word{number, 0, false, true}.raw(kind);
  if (words.load(at) == made) return Outcome::kDone;
  if (words.swap(at, 0, made, &found) != 0) return Outcome::kFailed;
  return found == 0 || found == made ? Outcome::kDone : Outcome::kBad;
}

// False: nobody has made it, or it is not from 1 to `most`.
inline bool read_number(Words& words, const uint64_t* at, Kind kind, uint64_t most,
                        uint32_t* number) {
  Word word;
  if (!Word::parse(words.load(at), kind, &word) || !word.held || word.flag || word.count != 0 ||
      word.holder == 0 || word.holder > most) {
    return false;
  }
  *number = static_cast<uint32_t>(word.holder);
  return true;
}

}  // namespace cmi::locks
