// Looks for an offer where a client says, until there is one. One thread at a time, without locks;
// signals come through.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/base/clock.hpp"
#include "core/rendezvous/offer.hpp"
#include "core/rendezvous/place.hpp"
#include "core/rendezvous/pmix_offers.hpp"
#include "core/rendezvous/tcp_finder.hpp"

namespace cmi::rendezvous {

class Search {
 public:
  Search(Place at, std::string name, PmixOffers& pmix);

  // An offer other than `gone`, whose home is not there any more. One look at least, which takes up
  // to kOneLook where it goes over a network. kReconfig, kInval: none by then; kInval at once where
  // none can come; kPerm, kNoMem, kNotSupp at once.
  Result<Offer> await(const std::optional<Offer>& gone, Deadline deadline);

  static constexpr Nanos kOneLook = 2 * kSecond;

 private:
  Result<Offer> look(Deadline deadline);

  const Place at_;
  const std::string name_;
  PmixOffers& pmix_;
  std::unique_ptr<TcpFinder> tcp_;
};

}  // namespace cmi::rendezvous
