// Mutations: conditions that break a rule of the protocol on purpose, one place each, for the tests
// that must notice it (doc/design/mutations.md). They are fault points that fail; a library built
// without CMI_FAULT_INJECTION has none of them.
#pragma once

#include "core/base/fault_point.hpp"

namespace cmi {

#ifdef CMI_FAULT_POINTS
[[gnu::always_inline]] inline bool mutated(const char* name) { return fault_point_fails(name); }
// Where what was left out is done after all, when others have had their chance.
[[gnu::always_inline]] inline bool mutated_late(const char* name) {
  const bool late = mutated(name);
  if (late) fault_point("mutation_window");
  return late;
}
#else
consteval bool mutated(const char* /*name*/) { return false; }
consteval bool mutated_late(const char* /*name*/) { return false; }
#endif

}  // namespace cmi
