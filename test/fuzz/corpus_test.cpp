// The inputs that the fuzzers begin with, in every build and with every compiler: what libFuzzer
// has once found stays found.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/targets.hpp"

namespace cmi::test::corpus_test {

namespace {

TEST_CASE("the_inputs_that_fuzzers_begin_with_do_no_harm") {
  for (const FuzzTarget& target : kFuzzTargets) {
    CAPTURE(target.name);
    size_t played = 0;
    const auto folder = std::filesystem::path(CMI_FUZZ_CORPUS) / target.name;
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      CAPTURE(file.path());
      std::ifstream in(file.path(), std::ios::binary);
      const std::vector<uint8_t> input{std::istreambuf_iterator<char>(in), {}};
      REQUIRE_FALSE(input.empty());
      Choices choices(input);
      target.play(choices, kAllOfInput);
      ++played;
    }
    CHECK(played > 0);
  }
}

}  // namespace

}  // namespace cmi::test::corpus_test
