// Whether the run is the long one (CMI_LONG=1, doc/design/testing.md): what repeats for the sake of
// probability, or has more than one circumstance that shows the same, does all of it there. Not in
// a build with a sanitizer, which is five to twenty times slower and looks at each access anyway.
#pragma once

#include <cstdlib>
#include <cstring>

#include "support/sanitized.hpp"

namespace cmi::test {

inline bool long_run() {
  if (kInstrumented) return false;
  const char* text = std::getenv("CMI_LONG");
  return text != nullptr && std::strcmp(text, "1") == 0;
}

}  // namespace cmi::test
