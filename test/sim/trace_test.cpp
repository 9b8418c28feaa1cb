// A trace of level debug shows each miss and each notice, with its segment.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/log.hpp"
#include "sim/scale/fleet.hpp"

namespace cmi::test::trace_test {

namespace {

using Lines = std::vector<std::string>;

auto count(const Lines& lines, const char* words) {
  return std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.find(words) != std::string::npos;
  });
}

TEST_SUITE("trace") {
  TEST_CASE("a_miss_and_a_notice_are_a_line_each_at_level_debug") {
    Fleet fleet(Fleet::Shape::kOneHome, 2);
    (void)fleet.join();
    (void)fleet.join();
    Lines lines;
    TraceSink sink;
    sink.arg = &lines;
    sink.log = [](void* arg, const char* line) { static_cast<Lines*>(arg)->emplace_back(line); };
    for (const Level level : {kInfo, kDebug}) {
      lines.clear();
      Trace::get().configure(kFacMem, level, sink);
      (void)fleet.measure(1, Fleet::Concerns::kAll, [&](NodeCalls&) { (void)*fleet.word(1, 5); });
      (void)fleet.measure(2, Fleet::Concerns::kAll, [&](NodeCalls& calls) {
        *fleet.word(2, 5) = level;
        REQUIRE(calls.wmb() == 0);
      });
      Trace::get().configure(0, kNone, {});
      CHECK(count(lines, "mem debug: miss: segment 1 page 5, load") == (level == kDebug ? 1 : 0));
      CHECK(count(lines, "mem debug: notice ") == (level == kDebug ? 1 : 0));
    }
  }
}

}  // namespace

}  // namespace cmi::test::trace_test
