// A swap of a write-through import, in the home's own memory.
#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/home/shared_access.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

void on_swap(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
             const SwapRequest& m) {
  const size_t size = m.size;
  std::byte found[SwapRequest::kMost] = {};
  WireStatus status = WireStatus::kMalformed;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    status = check_write_through(home, s.get(), client, m.instance, m.offset, size,
                                 fabric::kRead | fabric::kWrite);
    if (status == WireStatus::kOk) {
      std::memcpy(found, m.expected().data(), size);
      std::byte* at = s->service.data() + m.offset;
      bool possible = false;
      const auto swap = [&] { possible = swap_shared(at, found, m.desired().data(), size); };
      if (!unless_broken(at, size, swap)) {
        status = WireStatus::kBroken;
      } else if (!possible) {
        status = WireStatus::kMalformed;
      }
    }
  }
  fault_point("write_through_before_reply");
  reply(home.parts.server, client.id, number, status,
        status == WireStatus::kOk ? Bytes(found, size) : Bytes());
}

}  // namespace cmi::memory
