// One test on a home over each provider that is here. For the thread of the test.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "support/skip.hpp"
#include "system/calls.hpp"

namespace cmi::test {

// Runs `test(cluster, home, variables that choose the provider)` for each provider that opens, or
// for the one that the run is about.
template <class F>
void with_each_provider(F test) {
  int tried = 0;
  const char* only = std::getenv("CMI_TEST_PROVIDER");
  const bool one = only != nullptr && *only != 0;
  const std::vector<const char*> all{"net", "tcp", "tcp;ofi_rxm", "sockets"};
  for (const char* provider : one ? std::vector{only} : all) {
    const std::string name(provider);
    CAPTURE(name);
    Cluster cluster;
    Process& home = cluster.spawn_bare("home", {{"CMI_PROVIDER", provider}});
    const Answer started = ini(home);
    if (!one && started.failed(CMI_ERR_NOTSUPP)) continue;
    REQUIRE(started.ok());
    ++tried;
    test(cluster, home, Env{{"CMI_PROVIDER", provider}});
  }
  if (tried == 0) skip("none of the providers net, tcp, tcp;ofi_rxm, sockets is here");
}

}  // namespace cmi::test
