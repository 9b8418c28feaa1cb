// Is anybody listening at a door? A refused connection proves that the context behind the address
// is gone: a door lives exactly as long as its context. Everything else proves nothing.
// Threads: any; it waits no longer than told, the service thread tells it 2 ms.
#pragma once

#include <string_view>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/codec.hpp"

namespace cmi::fabric {

enum class Reach { kListening, kRefused, kUnknown };
// Understands socket addresses; other providers' addresses are kUnknown. The port of a door over
// verbs is none of TCP's: that TCP refuses it says only that the machine is there, so it counts as
// listening.
Reach probe_door(std::string_view provider, Bytes address, Nanos wait);
bool may_be_probed(Bytes address);
// All at once, so that it takes no longer than one.
std::vector<Reach> probe_doors(std::string_view provider,
                               const std::vector<std::vector<std::byte>>& addresses, Nanos wait);

// Why contexts that listen at these doors of one provider cannot both reach each other; null where
// nothing speaks against it.
const char* why_out_of_reach(Bytes own, Bytes theirs);
// No other machine reaches such a door.
bool is_loopback(Bytes address);

}  // namespace cmi::fabric
