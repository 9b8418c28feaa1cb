// Packets between fake endpoints: taking, executing, ending. The faults are in faults.cpp.
#include "fabric/fake/net.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>

#include "core/base/ids.hpp"

namespace cmi::fabric::fake {

namespace {
constexpr uint64_t kMagic = 0x74656e656b616643ull;

// Registered memory is shared with threads that know nothing of us, as with any real device: what
// they race on is theirs to judge, not the thread sanitizer's.
__attribute__((no_sanitize("thread"), noinline)) void device_copy(void* to, const void* from,
                                                                  size_t len) {
  auto* t = static_cast<volatile std::byte*>(to);
  const auto* f = static_cast<const volatile std::byte*>(from);
  size_t i = 0;
  if (((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) & 7) == 0) {
    for (; i + 8 <= len; i += 8) {
      *reinterpret_cast<volatile uint64_t*>(t + i) =
          *reinterpret_cast<const volatile uint64_t*>(f + i);
    }
  }
  for (; i < len; ++i) t[i] = f[i];
}
}  // namespace

std::array<std::byte, 16> Net::encode(EndpointId id) const {
  std::array<std::byte, 16> a{};
  if (modes_.ip_addresses) {
    const sockaddr_in at{AF_INET, htons(static_cast<uint16_t>(id)), {htonl(INADDR_LOOPBACK)}, {}};
    std::memcpy(a.data(), &at, sizeof at);
    return a;
  }
  Writer out(a);
  out.put(kMagic);
  out.put(id);
  return a;
}

EndpointId Net::decode(Bytes address) {
  sockaddr_in at{};
  if (address.size() == sizeof at) std::memcpy(&at, address.data(), sizeof at);
  if (at.sin_family == AF_INET && at.sin_addr.s_addr == htonl(INADDR_LOOPBACK)) {
    return ntohs(at.sin_port);
  }
  Reader in(address);
  if (in.get<uint64_t>() != kMagic) return 0;
  const auto id = in.get<uint64_t>();
  return in.done() ? id : 0;
}

uint64_t Net::new_id() {
  Guard g(mu_);
  return ++last_id_;
}

void Net::join(FakeEndpoint& ep) {
  Guard g(mu_);
  endpoints_[ep.id_] = &ep;
}

void Net::leave(FakeEndpoint& ep) {
  Guard g(mu_);
  endpoints_.erase(ep.id_);
  // What it has sent may still take effect, as bytes in a socket do; its buffers are not touched
  // any more, and its outcome is not reported.
  for (auto& [id, other] : endpoints_) {
    for (Packet& p : other->inbox_) {
      if (p.from != ep.id_) continue;
      p.op = nullptr;
      if (p.kind != Packet::Kind::kWrite) continue;
      p.bytes.resize(p.len);
      device_copy(p.bytes.data(), p.local, p.len);
    }
    std::erase_if(other->inbox_, [&](const Packet& p) {
      return p.from == ep.id_ && (p.kind == Packet::Kind::kRead || !modes_.late_writes);
    });
  }
  for (Packet& p : ep.inbox_) finish(std::move(p), Cause::kPeerLost);
  ep.inbox_.clear();
}

FakeEndpoint* Net::find(EndpointId id) {
  auto it = endpoints_.find(id);
  return it == endpoints_.end() ? nullptr : it->second;
}

FakeEndpoint* Net::find(Bytes address) { return find(decode(address)); }

bool Net::passes(EndpointId one, EndpointId other) {
  if (cut_.contains(std::minmax(one, other))) return false;
  const FakeEndpoint* a = find(one);
  const FakeEndpoint* b = find(other);
  return (a == nullptr || !a->vanished_) && (b == nullptr || !b->vanished_);
}

void Net::wake(FakeEndpoint& ep) {
  if (ep.event_) eventfd_write(ep.event_.get(), 1);
}

void Net::finish(Packet packet, Cause cause) {
  FakeEndpoint* initiator = packet.op != nullptr || packet.injected ? find(packet.from) : nullptr;
  if (initiator == nullptr) return;
  if (packet.injected) {
    --initiator->in_flight_;
    return;
  }
  if (cause != Cause::kOk && cause != Cause::kRefused)
    initiator->broken_.store(true, std::memory_order_relaxed);
  packet.cause = cause;
  initiator->results_.push_back(std::move(packet));
  wake(*initiator);
}

void Net::drop_injected(FakeEndpoint& from, EndpointId to) {
  Guard g(mu_);
  FakeEndpoint* const target = find(to);
  if (target == nullptr) return;
  from.in_flight_ -= std::erase_if(
      target->inbox_, [&](const Packet& p) { return p.injected && p.from == from.id_; });
}

Post Net::post(FakeEndpoint& from, Packet packet) {
  Guard g(mu_);
  FakeEndpoint* to = find(packet.to);
  // As the connected providers do: an unreachable peer is "again" for ever.
  if (to == nullptr || to->dead_ || from.dead_ || from.in_flight_ >= modes_.queue)
    return Post::kAgain;
  ++from.in_flight_;
  packet.from = from.id_;
  const bool message = packet.kind == Packet::Kind::kMessage;
  ++(message ? traffic_.messages : traffic_.one_sided);
  traffic_.bytes += message ? packet.bytes.size() : packet.len;
  if (modes_.one_sided && packet.kind != Packet::Kind::kMessage && !to->stopped_ &&
      !to->vanished_ && passes(from.id_, to->id_)) {
    if (!execute(*to, std::move(packet), nullptr)) end_between(from.id_, to->id_);
    return Post::kPosted;
  }
  to->inbox_.push_back(std::move(packet));
  wake(*to);
  return Post::kPosted;
}

FakeTraffic Net::traffic() {
  Guard g(mu_);
  return traffic_;
}

std::byte* Net::locate(const FakeEndpoint& target, const Packet& p, uint32_t rights) {
  auto it = regions_.find({target.node_, p.key});
  if (it == regions_.end()) return nullptr;
  const Memory& m = it->second;
  if (m.through != 0 && m.through != target.id_) return nullptr;
  const uint64_t base = modes_.virtual_addresses ? reinterpret_cast<uint64_t>(m.data) : 0;
  const uint64_t at = p.address - base;  // below the start it wraps and is out of bounds
  if ((m.rights & rights) != rights || at > m.len || p.len > m.len - at) return nullptr;
  if (p.kind == Packet::Kind::kCas && at % sizeof(uint64_t) != 0) return nullptr;
  return m.data + at;
}

bool Net::execute(FakeEndpoint& target, Packet p, std::vector<Packet>* out) {
  if (p.kind == Packet::Kind::kMessage) {
    Packet arrived;
    arrived.kind = p.kind;
    arrived.bytes = std::move(p.bytes);
    finish(std::move(p), Cause::kOk);
    if (target.lose_ > 0) {
      --target.lose_;
    } else {
      out->push_back(std::move(arrived));
    }
    return true;
  }
  const uint32_t rights = p.kind == Packet::Kind::kRead    ? kRead
                          : p.kind == Packet::Kind::kWrite ? kWrite
                                                           : kRead | kWrite;
  std::byte* memory = locate(target, p, rights);
  if (memory == nullptr) {
    finish(std::move(p), modes_.breaks_link ? Cause::kPeerLost : Cause::kRefused);
    return !modes_.breaks_link;
  }
  switch (p.kind) {
    case Packet::Kind::kRead:
      // What is there now; it reaches the initiator's memory when that polls.
      p.bytes.resize(p.len);
      device_copy(p.bytes.data(), memory, p.len);
      break;
    case Packet::Kind::kWrite:
      // Taken from the source only now: a change while the write is in flight shows.
      device_copy(memory, p.op != nullptr ? p.local : p.bytes.data(), p.len);
      break;
    case Packet::Kind::kCas: {
      uint64_t found = p.expected;
      __atomic_compare_exchange_n(reinterpret_cast<uint64_t*>(memory), &found, p.desired, false,
                                  __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
      p.expected = found;
      break;
    }
    case Packet::Kind::kMessage:
      break;
  }
  finish(std::move(p), Cause::kOk);
  return true;
}

std::vector<Packet> Net::turn(FakeEndpoint& ep) {
  constexpr size_t kBatch = 16;
  std::vector<Packet> out;
  Guard g(mu_);
  if (ep.stopped_ || ep.dead_ || ep.vanished_) return out;
  std::deque<Packet> taken;
  for (auto it = ep.inbox_.begin(); it != ep.inbox_.end() && taken.size() < kBatch;) {
    if (passes(it->from, ep.id_)) {
      taken.push_back(std::move(*it));
      it = ep.inbox_.erase(it);
    } else {
      ++it;
    }
  }
  if (!modes_.ordered) {
    // The contract orders nothing then: messages first, and the last operation before the first.
    std::reverse(taken.begin(), taken.end());
    std::stable_partition(taken.begin(), taken.end(),
                          [](const Packet& p) { return p.kind == Packet::Kind::kMessage; });
  }
  std::set<EndpointId> broken;  // whose connection to us has just gone
  for (Packet& p : taken) {
    const EndpointId from = p.from;
    if (broken.contains(from)) {
      finish(std::move(p), Cause::kPeerLost);
    } else if (!execute(ep, std::move(p), &out)) {
      broken.insert(from);
      end_between(from, ep.id_);
    }
  }
  size_t handed_out = 0;
  for (auto it = ep.results_.begin(); it != ep.results_.end() && handed_out < kBatch;) {
    if (!passes(it->from, it->to)) {
      ++it;
      continue;
    }
    out.push_back(std::move(*it));
    it = ep.results_.erase(it);
    --ep.in_flight_;
    ++handed_out;
  }
  for (Packet& p : out) {
    if (p.op == nullptr || p.cause != Cause::kOk) continue;
    if (p.kind == Packet::Kind::kRead) device_copy(p.local, p.bytes.data(), p.len);
    if (p.kind == Packet::Kind::kCas) *p.result = p.expected;
  }
  return out;
}

bool Net::idle(FakeEndpoint& ep) {
  Guard g(mu_);
  eventfd_t ignored;
  if (ep.event_) eventfd_read(ep.event_.get(), &ignored);
  if (ep.stopped_ || ep.dead_ || ep.vanished_) return true;
  for (const std::deque<Packet>* queue : {&ep.inbox_, &ep.results_}) {
    for (const Packet& p : *queue) {
      if (passes(p.from, p.to)) return false;
    }
  }
  return true;
}

Result<RemoteKey> Net::add_region(NodeId node, void* addr, size_t len, uint32_t rights,
                                  uint64_t key, EndpointId through) {
  Guard g(mu_);
  if (modes_.provider_keys) key = random_u64();
  auto* data = static_cast<std::byte*>(addr);
  if (!regions_.try_emplace({node, key}, Memory{data, len, rights, through}).second)
    return Status::kNoMem;
  return RemoteKey{key, modes_.virtual_addresses ? reinterpret_cast<uint64_t>(addr) : 0};
}

void Net::remove_region(NodeId node, uint64_t key) {
  Guard g(mu_);
  regions_.erase({node, key});
}

}  // namespace cmi::fabric::fake
