// What the library is made to do wrong or late while a random program runs: its fault points.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cmi::checker {

// Names of mutations that are compiled into the library that this program uses.
std::vector<std::string> library_mutations();
// Fault points of the delays that the library does not have: the list here is out of date.
std::vector<std::string> unknown_delays();

// For CMI_FAULT_POINT: some delays, other ones for each seed and node.
std::string random_delays(uint64_t seed, uint32_t node);

}  // namespace cmi::checker
