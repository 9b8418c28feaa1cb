// What is fuzzed. Each target makes contexts, hands them what the choices say, at most `most` times
// or until the choices are over, and checks that no harm was done. The cases of doctest run them
// from a seed and from the files of corpus/; libfuzzer/ makes a program of each, for clang.
#pragma once

#include <cstdint>

#include "fuzz/choices.hpp"

namespace cmi::test {

// Requests and acknowledgements of an importer that lies. True: a store came as far as the memory.
bool play_requests(Choices& choices, uint64_t most);
// Accesses of a write-through import. True: a store came as far as the memory.
bool play_accesses(Choices& choices, uint64_t most);
// Messages of strangers.
void play_messages(Choices& choices, uint64_t most);
// What a home tells an importer.
void play_notifications(Choices& choices, uint64_t most);
// What processes of one node tell each other.
void play_datagrams(Choices& choices, uint64_t most);
// What a process of the machine writes into the memory of a ring. Returns how many rings ended.
uint64_t play_rings(Choices& choices, uint64_t most);

struct FuzzTarget {
  const char* name;  // of its folder in corpus/
  void (*play)(Choices& choices, uint64_t most);
};

inline constexpr FuzzTarget kFuzzTargets[] = {
    {"requests", [](Choices& choices, uint64_t most) { play_requests(choices, most); }},
    {"accesses", [](Choices& choices, uint64_t most) { play_accesses(choices, most); }},
    {"messages", play_messages},
    {"notifications", play_notifications},
    {"datagrams", play_datagrams},
    {"rings", [](Choices& choices, uint64_t most) { play_rings(choices, most); }},
};

// More than an input of libFuzzer's usual length can ask for.
inline constexpr uint64_t kAllOfInput = 100'000;

}  // namespace cmi::test
