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

// Addresses are names of files with shm alone.
fabric::ofi::OpenForTrial provider(const std::string& name) {
  return [name](const std::string& own) -> Result<std::unique_ptr<Fabric>> {
    const std::string address = name == "shm" ? own : "127.0.0.1";
    auto found = fabric::ofi::candidates(name, address, *fabric::ofi::libfabric());
    if (found.empty()) return Status::kNotSupp;
    return fabric::ofi::OfiFabric::open(std::move(found[0]), true);
  };
}

size_t files_of_trials() {
  size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    found += entry.path().filename().string().starts_with("cmi-trial-") ? 1 : 0;
  }
  return found;
}
}  // namespace

TEST_CASE("tcp_passes_the_trial_of_peers_that_end_or_stop") {
  const char* const fails = what_fails_at_peers_ends(provider("tcp"));
  CHECK_MESSAGE(fails == nullptr, std::string(fails != nullptr ? fails : ""));
}

TEST_CASE("what_does_not_open_or_crashes_over_it_is_named_by_the_trial") {
  const char* fails = what_fails_at_peers_ends([](auto&) { return Status::kNotSupp; });
  REQUIRE(fails != nullptr);
  CHECK(std::string(fails).find("does not open") != std::string::npos);
  fails = what_fails_at_peers_ends([](auto&) -> Result<std::unique_ptr<Fabric>> { std::abort(); });
  REQUIRE(fails != nullptr);
  CHECK(std::string(fails).find("does not open") != std::string::npos);
}

// The process that asks lives on, whatever the provider does, and no file of it is left.
TEST_CASE("a_trial_of_the_shm_provider_ends_and_leaves_nothing_behind") {
  if (!provider("shm")("cmi-test-shm")) return skip("this libfabric has no shm");
  const size_t before = files_of_trials();
  const char* const fails = what_fails_at_peers_ends(provider("shm"));
  MESSAGE(std::string(fails != nullptr ? fails : "messages pass"));
  CHECK(files_of_trials() <= before);
}

}  // namespace cmi::test::peers_trial_test
