// What cmiadm doctor says of the number of importers.
#include "../tools/cmiadm/cluster_limits.hpp"

#include <doctest/doctest.h>

namespace cmi::adm {

TEST_SUITE("cluster_limits") {
  TEST_CASE("so_many_importers_as_there_are_descriptors_for_and_never_more_than_connections") {
    CHECK(importers_for_files(0) == 0);
    CHECK(importers_for_files(kDescriptorsOfContext) == 0);
    CHECK(importers_for_files(UINT64_MAX) == fabric::kMaxClients);
    for (const uint64_t importers : {uint64_t{1}, uint64_t{100}, uint64_t{fabric::kMaxClients}}) {
      CAPTURE(importers);
      const uint64_t files = files_for_importers(importers);
      CHECK(importers_for_files(files) == importers);
      CHECK(importers_for_files(files - 1) == importers - 1);
    }
  }
}

}  // namespace cmi::adm
