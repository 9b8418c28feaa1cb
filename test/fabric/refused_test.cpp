// What is said of providers that are not tried.
#include "fabric/ofi/refused.hpp"

#include <doctest/doctest.h>
#include <rdma/fabric.h>

#include <string>

namespace cmi::test::refused_test {

TEST_CASE("shm_is_refused_with_what_fails_in_this_version_of_libfabric") {
  const char* const old = fabric::ofi::why_refused("shm", FI_VERSION(1, 17));
  const char* const later = fabric::ofi::why_refused("shm", FI_VERSION(2, 1));
  REQUIRE(old != nullptr);
  REQUIRE(later != nullptr);
  CHECK(std::string(old).find("stops them for good") != std::string::npos);
  CHECK(std::string(later).find("never ends") != std::string::npos);
  CHECK(fabric::ofi::why_refused("tcp", FI_VERSION(2, 1)) == nullptr);
}

}  // namespace cmi::test::refused_test
