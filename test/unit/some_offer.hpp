// An offer for tests of what carries offers.
#pragma once

#include <doctest/doctest.h>

#include <vector>

#include "core/access/handles.hpp"
#include "core/rendezvous/offer.hpp"

namespace cmi::test {

inline rendezvous::Offer some_offer(uint64_t uid = 7, uint64_t token_uid = 7) {
  access::RsegInfo r;
  r.uid = uid;
  r.home_seg = 42;
  r.size = 3 << 20;
  r.home_node = {1, 2};
  r.home = {3, 4};
  r.listeners = {{"tcp", std::vector<std::byte>(16)}};
  access::TokenInfo t;
  t.uid = token_uid;
  t.id = 6;
  t.secret = 8;
  t.rights = fabric::kRead;
  t.any_node = true;
  t.home = {3, 4};
  rendezvous::Offer offer{std::vector<std::byte>(access::kRsegSize),
                          std::vector<std::byte>(access::kTokenSize)};
  REQUIRE(access::encode_rseg(r, offer.rseg) == Status::kOk);
  REQUIRE(access::encode_token(t, offer.token) == Status::kOk);
  return offer;
}

}  // namespace cmi::test
