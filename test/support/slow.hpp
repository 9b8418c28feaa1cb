// How many times longer than usual things may take: CMI_TEST_SLOW, set where the machine is
// emulated (test/verbs). Bounds what a test waits for, never what it expects.
#pragma once

#include <cstdlib>

namespace cmi::test {

inline int slowness() {
  const char* factor = std::getenv("CMI_TEST_SLOW");
  const int times = factor != nullptr ? std::atoi(factor) : 1;
  return times > 1 ? times : 1;
}

}  // namespace cmi::test
