// The trial of what peers' ends do to those who talk to them, in processes of its own.
#include "fabric/ofi/peers_trial.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "fabric/ofi/domain.hpp"
#include "support/skip.hpp"

namespace cmi::test::peers_trial_test {

namespace {
using fabric::Fabric;
using fabric::ofi::what_fails_at_peers_ends;

fabric::ofi::OpenForTrial provider(const char* name) {
  return [name]() -> Result<std::unique_ptr<Fabric>> {
    auto found = fabric::ofi::candidates(name, "127.0.0.1", *fabric::ofi::libfabric());
    if (found.empty()) return Status::kNotSupp;
    return fabric::ofi::OfiFabric::open(std::move(found[0]), true);
  };
}

// As the shm provider names them, after the process that has made them.
size_t files_of_processes() {
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    found += name.find_first_not_of("0123456789") == name.find(':') && name[0] != ':' ? 1 : 0;
  }
  return found;
}
}  // namespace

TEST_CASE("tcp_passes_the_trial_of_peers_that_end_or_stop") {
  const char* const fails = what_fails_at_peers_ends(provider("tcp"));
  CHECK_MESSAGE(fails == nullptr, (fails != nullptr ? fails : ""));
}

TEST_CASE("what_does_not_open_or_crashes_over_it_is_named_by_the_trial") {
  const char* fails = what_fails_at_peers_ends([] { return Status::kNotSupp; });
  REQUIRE(fails != nullptr);
  CHECK(std::string(fails).find("does not open") != std::string::npos);
  fails = what_fails_at_peers_ends([]() -> Result<std::unique_ptr<Fabric>> { std::abort(); });
  REQUIRE(fails != nullptr);
  CHECK(std::string(fails).find("does not open") != std::string::npos);
}

// The process that asks lives on, whatever the provider does, and no file of it is left.
TEST_CASE("a_trial_of_the_shm_provider_ends_and_leaves_nothing_behind") {
  if (!provider("shm")()) return skip("this libfabric has no shm");
  const size_t before = files_of_processes();
  const char* const fails = what_fails_at_peers_ends(provider("shm"));
  MESSAGE((fails != nullptr ? fails : "messages pass"));
  CHECK(files_of_processes() <= before);
}

}  // namespace cmi::test::peers_trial_test
