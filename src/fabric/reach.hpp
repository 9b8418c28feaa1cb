// Is anybody listening at a door? A refused connection proves that the context behind the address
// is gone: a door lives exactly as long as its context. Everything else proves nothing. Threads:
// any but the service thread (it may wait a little).
#pragma once

#include "core/base/clock.hpp"
#include "core/base/codec.hpp"

namespace cmi::fabric {

enum class Reach { kListening, kRefused, kUnknown };
// Understands socket addresses; other providers' addresses are kUnknown.
Reach probe_door(Bytes address, Nanos wait);

}  // namespace cmi::fabric
