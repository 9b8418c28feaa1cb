// The line that a process leaves which dies of an exception.
#include "core/memory/vm/fatal_line.hpp"

#include <doctest/doctest.h>

#include <string>

namespace cmi::test::fatal_line_test {

using namespace cmi::memory;

TEST_CASE("the_fatal_line_names_exception_address_and_segment") {
  char out[kFatalLineSize];
  const auto* addr = reinterpret_cast<const void*>(uintptr_t{0x7f12345678});
  const std::string line(out, format_fatal_line(Exception::kToken, addr, 17, out));
  CHECK(line.starts_with("libcmi: CMI_ERROR_TOKEN at 0x7f12345678 in segment 17: "));
  CHECK(line.find(exception_meaning(2)) != std::string::npos);
  CHECK(line.find('\n') == line.size() - 1);
}

TEST_CASE("each_fatal_line_fits_whole") {
  char out[kFatalLineSize];
  const auto* addr = reinterpret_cast<const void*>(UINTPTR_MAX);
  for (int e = -1; e <= 9; ++e) {
    const size_t length = format_fatal_line(static_cast<Exception>(e), addr, INT32_MIN, out);
    REQUIRE(length <= kFatalLineSize);
    CHECK(std::string(out, length).ends_with("so the process ends.\n"));
  }
}

TEST_CASE("exceptions_have_names_of_their_own_and_unknown_ones_say_so") {
  for (int e = 0; e <= 8; ++e) {
    for (int other = 0; other < e; ++other) {
      CHECK(std::string(exception_name(e)) != exception_name(other));
      CHECK(std::string(exception_meaning(e)) != exception_meaning(other));
    }
  }
  for (const int unknown : {-1, 9, INT32_MAX, INT32_MIN}) {
    CHECK(std::string(exception_name(unknown)) == "an unknown exception");
  }
}

}  // namespace cmi::test::fatal_line_test
