// When a lost lifeline is tried again, and at whose address.
#include "core/memory/membership/peer_record.hpp"

#include <doctest/doctest.h>

namespace cmi::test::peer_record_test {

using namespace cmi::memory;

TEST_CASE("a_lost_line_is_tried_at_once_and_then_ever_more_rarely") {
  LineRetry retry;
  retry.lose(100);
  CHECK(retry.at == 100);
  retry.lose(200);  // it is lost already: the try that is due stays due
  CHECK(retry.at == 100);
  Nanos pause = 0, t = 100;
  for (int i = 0; i < 20; ++i) {
    retry.next(t);
    CHECK(retry.at - t >= pause);
    CHECK(retry.at - t <= LineRetry::kLastPause);
    if (i == 0) CHECK(retry.at - t == LineRetry::kFirstPause);
    pause = retry.at - t;
    t = retry.at;
  }
  CHECK(pause == LineRetry::kLastPause);
}

TEST_CASE("a_home_is_in_doubt_where_its_line_is_tried_at_an_address_that_never_answered") {
  PeerRecord peer;
  CHECK_FALSE(peer.in_doubt());
  peer.home.emplace();
  peer.home->listener.blob = {std::byte{1}};
  CHECK_FALSE(peer.in_doubt());  // the line is not lost
  peer.home->retry.lose(1);
  CHECK(peer.in_doubt());
  peer.home->met.insert(peer.home->listener.blob);
  CHECK_FALSE(peer.in_doubt());
}

}  // namespace cmi::test::peer_record_test
