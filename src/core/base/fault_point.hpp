// Named points where a test can kill, stop or delay the process, switched on by the environment
// variable CMI_FAULT_POINT, read once: "name=kill", "name=stop", "name=exit", "name=delay:MICROS",
// "name=hold:FILE" (until there is such a file), with "#N" on the N-th passage only
// ("name#3=kill"), or "#N+" on that and all later ones; several joined by ';'. CMI_FAULT_COUNT
// names a file to count passages in: see fault_count.hpp. One relaxed load when none is set. Any
// thread, signal handlers too. Only a library built with CMI_FAULT_INJECTION has them: elsewhere
// the functions are consteval, so that not even a name is left, and nobody reads the environment.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>

namespace cmi {

#ifdef CMI_FAULT_POINTS

extern std::atomic<bool> g_fault_points_armed;
// Cold: what is done where a point is armed lies apart from the code that runs without.
[[gnu::cold]] void fault_point_reached(const char* name);
// True when the point is listed with "=fail": the caller then takes its error path.
[[gnu::cold]] bool fault_point_fails_slow(const char* name);
void arm_fault_points();  // reads the environment; called by cmi_ini and by tests
// The points that are set, as bytes to be put aside: each process of a simulation has its own.
std::span<std::byte> fault_point_table();

inline bool fault_points_armed() { return g_fault_points_armed.load(std::memory_order_relaxed); }
[[gnu::always_inline]] inline void fault_point(const char* name) {
  if (fault_points_armed()) [[unlikely]] {
    fault_point_reached(name);
  }
}
[[gnu::always_inline]] inline bool fault_point_fails(const char* name) {
  if (fault_points_armed()) [[unlikely]] {
    return fault_point_fails_slow(name);
  }
  return false;
}

#else

consteval void arm_fault_points() {}
consteval bool fault_points_armed() { return false; }
consteval void fault_point(const char* /*name*/) {}
consteval bool fault_point_fails(const char* /*name*/) { return false; }

#endif

}  // namespace cmi
