// When a user of a segment is gone (cmi_ofi_holder_gone): not before every node has dropped what it
// had of before, so that what the dead one left is not seen to come afterwards (rule 31).
#include <cmi/ofi/cmi_sync.h>
#include <doctest/doctest.h>

#include <string>
#include <thread>

#include "core/base/clock.hpp"
#include "support/passages.hpp"
#include "system/calls.hpp"

namespace cmi::test::gone_nodes_test {

namespace {

int is_gone(Process& process, uint64_t at, uint64_t name) {
  return process.run(
      [](uint64_t view, uint64_t holder) {
        return cmi_ofi_holder_gone(ctxt(), reinterpret_cast<void*>(view), holder);
      },
      at, name);
}

// A writer is killed, and a reader that has a page cached takes long to drop it. Whether the writer
// was said to be gone before the reader's answer was there, or the reader dead.
struct Death {
  bool early = false, in_the_end = false;
};
Death death(const Env& home_env) {
  Cluster cluster;
  Process& home = cluster.spawn("home", home_env);
  Process& writer = cluster.spawn("writer");
  const std::string passages = cluster.scratch() + "/reader";
  Process& reader =
      cluster.spawn("reader", {{"CMI_FAULT_COUNT", passages},
                               {"CMI_FAULT_POINT", "invalidate_before_ack=delay:60000000"},
                               {"CMI_LOCAL", "off"}});  // mapped pages need not be dropped
  const Export exported = export_segment(home, 16 * kPage, kAllRights, CMI_SEG_CLIENT_CONSIST);
  const Import import = import_segment(writer, exported);
  const Import there = import_segment(reader, exported);
  REQUIRE(load(reader, there.at).value == 0);
  const uint64_t name = name_of(writer, import.at);
  REQUIRE(name != 0);
  REQUIRE(is_gone(home, exported.at, name) == 0);
  writer.kill();
  const Deadline end = Deadline::in(60 * kSecond);
  while (read_passages(passages)["invalidate_before_ack"] == 0) REQUIRE_FALSE(end.passed());
  Death result;
  // The home has forgotten the writer by then: it answers one thing after another.
  for (int i = 0; i < 5; ++i) result.early |= is_gone(home, exported.at, name) != 0;
  reader.kill();
  while (!result.in_the_end && !end.passed()) {
    result.in_the_end = is_gone(home, exported.at, name) == 1;
  }
  return result;
}

}  // namespace

TEST_SUITE("gone") {
  PROCESS_CASE("a_killed_writer_is_gone_when_all_have_dropped_what_it_may_have_stored") {
    const Death seen = death({});
    CHECK_FALSE(seen.early);
    CHECK(seen.in_the_end);
  }

  PROCESS_CASE("a_writer_that_is_gone_too_early_is_noticed") {
    CHECK(death({{"CMI_FAULT_POINT", "mutate_gone_before_dropped=fail"}}).early);
  }
}

}  // namespace cmi::test::gone_nodes_test
