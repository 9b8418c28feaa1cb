// Leaving a case out with a reason: ctest then reports it as skipped, neither passed nor failed.
// Call from the test's own thread, with a reason that was found by probing, and return at once.
#pragma once

namespace cmi::test {

// What a program ends with whose case was skipped; SKIP_RETURN_CODE in test/CMakeLists.txt.
inline constexpr int kSkippedStatus = 77;

void skip(const char* reason);

}  // namespace cmi::test
