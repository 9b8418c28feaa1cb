// Asks a process that serves offers (tcp_offers.hpp) for one. One thread at a time, without locks;
// signals come through.
#pragma once

#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "core/rendezvous/offer.hpp"
#include "core/rendezvous/place.hpp"
#include "core/rendezvous/tcp_address.hpp"

namespace cmi::rendezvous {

class TcpFinder {
 public:
  TcpFinder(Place at, std::string name) : at_(std::move(at)), name_(std::move(name)) {}

  // One question, to the first address of the host that is listened at. `patience` begins when the
  // host is known. kReconfig: nobody answers there, or nobody offers it; kInval: there is
  // no such host, or what answers is no offerer; kPerm: as Asker; kNoMem: no descriptors.
  Result<Offer> ask(Nanos patience);

  // Whether asking again is of no use, after an error.
  bool hopeless() const { return hopeless_; }

 private:
  Result<Offer> ask_over(int fd, Deadline deadline) const;

  const Place at_;
  const std::string name_;
  std::vector<TcpAddress> addresses_;  // once they are known
  bool hopeless_ = false;
};

}  // namespace cmi::rendezvous
