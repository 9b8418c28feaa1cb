// A load of a write-through import, in the home's own memory.
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/home/shared_access.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

void on_load(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
             const LoadRequest& m) {
  const size_t len = m.length;
  std::byte buf[1 + kMaxWriteThrough];
  WireStatus status = WireStatus::kMalformed;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    status = check_write_through(home, s.get(), client, m.instance, m.offset, len, fabric::kRead);
    if (status == WireStatus::kOk) {
      const std::byte* from = s->service.data() + m.offset;
      if (!unless_broken(from, len, [&] { copy_shared(buf + 1, from, len); })) {
        status = WireStatus::kBroken;
      }
    }
  }
  buf[0] = static_cast<std::byte>(status);
  home.parts.server.reply(client.id, number, {buf, status == WireStatus::kOk ? 1 + len : 1});
}

}  // namespace cmi::memory
