// Offers with PMIx where there is none; what a launcher carries is tried by test/pmix.
#include "core/rendezvous/pmix_offers.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

#include "core/base/cause.hpp"
#include "unit/some_offer.hpp"

namespace cmi::test::pmix_offers_test {
using namespace cmi::rendezvous;
using cmi::test::some_offer;

TEST_CASE("without_pmix_a_call_says_what_is_missing") {
  const char* const name = std::getenv("PMIX_NAMESPACE");
  const std::string before = name != nullptr ? name : "";
  ::unsetenv("PMIX_NAMESPACE");
  PmixOffers nowhere("libno-such-library.so.1");
  CHECK(nowhere.put({}, "a", some_offer()) == Status::kNotSupp);
  const std::string missing = take_cause(Status::kNotSupp);
  CHECK((missing == "libpmix is not there" || missing == "libcmi was built without PMIx"));
  CHECK(nowhere.find(0, "a", Deadline::in(kSecond)).status() == Status::kNotSupp);
  PmixOffers alone;
  CHECK(alone.put({}, "a", some_offer(7, 8)) == Status::kInval);
  CHECK(alone.put({}, "a", some_offer()) == Status::kNotSupp);
  CHECK(alone.find(0, "a", Deadline::in(kSecond)).status() == Status::kNotSupp);
  if (name != nullptr) ::setenv("PMIX_NAMESPACE", before.c_str(), 1);
}

}  // namespace cmi::test::pmix_offers_test
