// What error numbers of providers say, and what they do not.
#include "fabric/ofi/cause.hpp"

#include <doctest/doctest.h>
#include <rdma/fi_errno.h>

#include <initializer_list>

namespace cmi::test::cause_test {
namespace {

// A swap that was refused was not made. Of everything else the fate is open, and others are told.
TEST_CASE("a_denial_alone_proves_that_nothing_was_done") {
  using fabric::Cause;
  for (int err : std::initializer_list<int>{FI_EACCES, FI_EPERM, FI_ENOKEY, FI_EKEYREJECTED}) {
    CAPTURE(err);
    CHECK(fabric::ofi::cause_of(err) == Cause::kRefused);
    CHECK_FALSE(fabric::ofi::ends_connection(err));
  }
  // verbs ends every failed work request with EIO, also one that was done and not acknowledged.
  for (int err : std::initializer_list<int>{FI_EIO, FI_ECANCELED, FI_ECONNRESET, FI_ETIMEDOUT,
                                            FI_ENOTCONN, FI_ESHUTDOWN}) {
    CAPTURE(err);
    CHECK(fabric::ofi::cause_of(err) == Cause::kPeerLost);
    CHECK(fabric::ofi::ends_connection(err));
  }
}

}  // namespace
}  // namespace cmi::test::cause_test
