// Is anybody listening at a listener? A refused connection proves that the context behind the
// address is gone: a listener lives exactly as long as its context. Everything else proves nothing.
// Threads: any; it waits no longer than its argument says, on the service thread 2 ms.
#pragma once

#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/codec.hpp"
#include "fabric/fabric.hpp"

namespace cmi::fabric {

enum class Reach { kListening, kRefused, kUnknown };
// Understands socket addresses; other providers' addresses are kUnknown. The port of a listener
// over verbs is none of TCP's: that TCP refuses it says only that the machine is there, so it
// counts as listening.
Reach probe_listener(const ListenerAddress& listener, Nanos wait);
bool may_be_probed(const ListenerAddress& listener);
// Of listeners of one context: listening if one is, refused if all are.
Reach probe_any(const std::vector<ListenerAddress>& listeners, Nanos wait);
// All at once, so that it takes no longer than one.
std::vector<Reach> probe_listeners(const std::vector<ListenerAddress>& listeners, Nanos wait);

// Why contexts that listen at these listeners of one provider cannot both reach each other; null
// where nothing speaks against it.
const char* why_out_of_reach(Bytes own, Bytes theirs);
// No other machine reaches such a listener.
bool is_loopback(Bytes address);
// An address of the internet that this machine has itself.
bool is_of_this_machine(Bytes address);
// Whether a peer of a context that listens at `own` may listen there: an address of the same kind,
// with a port.
bool is_listener(Bytes own, Bytes theirs);

// How the kernel would send to a listener from an address of this machine.
enum class Distance : uint8_t {
  kDirect,   // within the subnet of that address, or to this machine itself
  kRouted,   // from that address, over others
  kUnknown,  // from another address; or none of the internet's
  kNoWay,    // not at all
};
Distance distance(Bytes own, Bytes theirs);

// "10.0.0.1:41234" for a socket address, else its bytes in hexadecimal digits.
std::string listener_text(Bytes listener);

}  // namespace cmi::fabric
