// A store of a write-through import, in the home's own memory, where its processes and other
// importers see it at once. Nobody has copies meanwhile, so nobody is notified.
#include <atomic>

#include "core/base/fault_point.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/home/shared_access.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

// The runs have been checked: all of them are stored or nothing.
void on_store(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
              const StoreRequest& m) {
  WireStatus status = WireStatus::kMalformed;
  {
    const SegmentLock s(home, Uid{m.uid}, SegmentLock::kMemory);
    status =
        check_write_through(home, s.get(), client, m.instance, m.offset, m.end(), fabric::kWrite);
    if (status == WireStatus::kOk) {
      m.each_run([&](const StoreRequest::Run& run) {
        std::byte* to = s->service.data() + m.offset + run.at;
        const auto copy = [&] { copy_shared(to, run.bytes.data(), run.bytes.size()); };
        if (!unless_broken(to, run.bytes.size(), copy)) status = WireStatus::kBroken;
      });
    }
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  fault_point("write_through_before_reply");
  reply(home.parts.server, client.id, number, status);
}

}  // namespace cmi::memory
