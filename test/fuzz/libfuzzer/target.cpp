// The libFuzzer program of the target CMI_FUZZ_TARGET. A check that fails ends the process, which
// libFuzzer reports with the input that did it.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "fuzz/targets.hpp"

namespace {

void end_with(const doctest::AssertData& check) {
  std::fprintf(stderr, "%s:%d: %s( %s ) failed\n", check.m_file, check.m_line,
               doctest::assertString(check.m_at), check.m_expr);
  std::abort();
}

const cmi::test::FuzzTarget& target() {
  const auto* const found =
      std::find_if(std::begin(cmi::test::kFuzzTargets), std::end(cmi::test::kFuzzTargets),
                   [](const auto& t) { return std::string_view(t.name) == CMI_FUZZ_TARGET; });
  if (found == std::end(cmi::test::kFuzzTargets)) std::abort();  // CMakeLists.txt is wrong
  return *found;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  static doctest::Context context;
  context.setAsDefaultForAssertsOutOfTestCases();
  context.setAssertHandler(end_with);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cmi::test::Choices choices(std::span(data, size));
  target().play(choices, cmi::test::kAllOfInput);
  return 0;
}
