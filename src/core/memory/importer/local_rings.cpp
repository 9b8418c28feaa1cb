// See local_rings.hpp.
#include "core/memory/importer/local_rings.hpp"

#include <array>

#include "core/memory/wire/local_messages.hpp"
#include "core/node/local_channel.hpp"

namespace cmi::memory {

bool LocalRings::dial(const fabric::ring::Proof& proof, fabric::ring::Channel::Passed requests,
                      fabric::ring::Channel::Made notifications) {
  const auto& notes = notifications.passed;
  const std::array<int, RingAsk::kFds> fds{requests.memory.get(), requests.socket.get(),
                                           notes.memory.get(), notes.socket.get()};
  const RingAsk m{proof.client.hi, proof.client.lo, proof.secret};
  // The home answers by the ring. So this side's end of the channel is closed at once.
  if (!node::LocalChannel::ask(folder_, slot_, Encoded(m), fds)) return false;
  server_.hear_by_ring(home_, std::move(notifications.channel));
  return true;
}

}  // namespace cmi::memory
