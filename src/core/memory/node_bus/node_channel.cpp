#include "core/memory/node_bus/node_channel.hpp"

#include <algorithm>

#include "core/memory/node_bus/await.hpp"

namespace cmi::memory {

bool NodeChannel::send_and_await(node::ContextSlot to, int32_t segment, BusQuestion& question,
                                 Bytes datagram, int pass_fd, Deadline deadline) {
  for (Backoff backoff;; backoff.pause()) {
    const Status sent = send(to, datagram, pass_fd);
    // The owner has ended: no remote node has the segment any more.
    if (sent == Status::kInval) return true;
    if (ok(sent)) return await_in_slices(to, segment, question, datagram, pass_fd, deadline);
    if (deadline.passed()) return false;
  }
}

// An owner that dies meanwhile will never answer, so the wait is cut into slices.
bool NodeChannel::await_in_slices(node::ContextSlot to, int32_t segment, BusQuestion& question,
                                  Bytes datagram, int pass_fd, Deadline deadline) {
  while (!deadline.passed()) {
    const Deadline slice{std::min(deadline.at, now() + 100 * kMilli)};
    if (await(question.done, server_, slice)) return true;
    // A registry that cannot be had says nothing: a stopped process may hold its lock.
    const auto info = node_.segments().find(segment, 2 * kMilli);
    if (info ? info->owner == to && !info->owner_alive : info.status() == Status::kInval) {
      return true;
    }
    // The answer may have found our queue full, so the question is repeated. Each thing is done
    // twice without harm.
    if (send(to, datagram, pass_fd) == Status::kInval) return true;
  }
  return false;
}

void NodeChannel::answer(node::ContextSlot to, int32_t segment, uint64_t question, Status status,
                         int file) {
  BusAnswer m;
  m.segment = segment;
  m.question = question;
  m.status = static_cast<uint64_t>(status);
  (void)send(to, Encoded(m), file);
}

bool NodeChannel::send_stored(node::ContextSlot owner, int32_t id, StoreLog& stores) {
  constexpr size_t kAtOnce = 512;  // ranges of one datagram
  auto stored = stores.take();
  while (!stored.empty()) {
    const size_t n = std::min(kAtOnce, stored.size());
    std::byte buf[kWireSize<BusStored> + kAtOnce * PageRangeList::kItem];
    Writer out(buf);
    BusStored m;
    m.segment = id;
    m.count = n;
    encode(m, out);
    for (size_t i = 0; i < n; ++i) PageRangeList::put(out, stored[i]);
    if (send(owner, out.done()) == Status::kReconfig) {
      stores.put_back(stored);
      return false;
    }
    stored.erase(stored.begin(), stored.begin() + static_cast<ptrdiff_t>(n));
  }
  return true;
}

}  // namespace cmi::memory
