// Loads and stores that write-through imports make here: in the home's own memory, where its
// processes and other importers see them at once. Nobody has copies meanwhile, so nobody is told.
// Every field is checked; nothing here waits.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/memory/home/home.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

namespace {

template <class T>
struct [[gnu::packed]] Unaligned {
  T value;
};

template <class T>
void copy_one(std::byte* to, const std::byte* from) {
  // One access: whole for everybody else within a cache line, as an instruction's would be.
  const T v = reinterpret_cast<const volatile Unaligned<T>*>(from)->value;
  reinterpret_cast<volatile Unaligned<T>*>(to)->value = v;
}

// Between a message and memory that others use at the same time. What an instruction accesses as
// one is copied as one.
void copy_shared(std::byte* to, const std::byte* from, size_t n) {
  while (n >= 8) {
    copy_one<uint64_t>(to, from);
    to += 8;
    from += 8;
    n -= 8;
  }
  if (n >= 4) {
    copy_one<uint32_t>(to, from);
    to += 4;
    from += 4;
    n -= 4;
  }
  if (n >= 2) {
    copy_one<uint16_t>(to, from);
    to += 2;
    from += 2;
    n -= 2;
  }
  if (n != 0) copy_one<uint8_t>(to, from);
}

template <class T>
bool swap_one(std::byte* at, std::byte* expected, const std::byte* desired) {
  T was, next;
  std::memcpy(&was, expected, sizeof was);
  std::memcpy(&next, desired, sizeof next);
  auto* word = reinterpret_cast<volatile Unaligned<T>*>(at);
  bool swapped;
  // Not the builtin, which wants it aligned.
  asm volatile("lock cmpxchg %3, %1"
               : "=@ccz"(swapped), "+m"(word->value), "+a"(was)
               : "r"(next)
               : "memory");
  std::memcpy(expected, &was, sizeof was);
  return swapped;
}

void swap_16(std::byte* at, std::byte* expected, const std::byte* desired) {
  uint64_t was[2], next[2];
  std::memcpy(was, expected, sizeof was);
  std::memcpy(next, desired, sizeof next);
  struct Wide {
    uint64_t word[2];
  };
  asm volatile("lock cmpxchg16b %0"
               : "+m"(*reinterpret_cast<volatile Wide*>(at)), "+a"(was[0]), "+d"(was[1])
               : "b"(next[0]), "c"(next[1])
               : "cc", "memory");
  std::memcpy(expected, was, sizeof was);
}

// Stores `desired` if `expected` is there; what was there goes to `expected`.
bool swap_shared(std::byte* at, std::byte* expected, const std::byte* desired, size_t size) {
  constexpr size_t kLine = 64;
  const auto address = reinterpret_cast<uintptr_t>(at);
  if (address % kLine + size > kLine) return false;
  switch (size) {
    case 1:
      swap_one<uint8_t>(at, expected, desired);
      return true;
    case 2:
      swap_one<uint16_t>(at, expected, desired);
      return true;
    case 4:
      swap_one<uint32_t>(at, expected, desired);
      return true;
    case 8:
      swap_one<uint64_t>(at, expected, desired);
      return true;
    case 16:
      if (address % 16 != 0) return false;
      swap_16(at, expected, desired);
      return true;
    default:
      return false;
  }
}

}  // namespace

bool Home::may_import(const Segment& s, bool write_through) {
  if (!(write_through ? s.exported_write_through : s.exported_cached)) return false;
  return std::all_of(s.sharers.begin(), s.sharers.end(),
                     [&](const Sharer& h) { return h.write_through == write_through; });
}

WireStatus Home::check_write_through(const fabric::ClientInfo& client, uint64_t uid,
                                     uint32_t instance, uint64_t offset, size_t len,
                                     uint32_t rights, Segment** segment) {
  Sharer* h = nullptr;
  const WireStatus status = check(client.id, uid, instance, rights, segment, &h);
  if (status != WireStatus::kOk) return status;
  if (!h->write_through) return WireStatus::kToken;
  const Segment& s = **segment;
  if (len == 0 || offset >= s.brk.bytes || len > s.brk.bytes - offset) return WireStatus::kRange;
  const uint64_t first = offset / kPageSize, last = (offset + len - 1) / kPageSize;
  if (!h->covers(first, last - first + 1)) return WireStatus::kRights;
  for (uint64_t page = first; page <= last; ++page) {
    if (s.in_flux.contains(static_cast<uint32_t>(page))) return WireStatus::kInFlux;
  }
  return WireStatus::kOk;
}

void Home::on_load(const fabric::ClientInfo& client, uint64_t number, const LoadRequest& m) {
  const size_t len = m.length;
  std::byte buf[1 + kMaxWriteThrough];
  WireStatus status = WireStatus::kMalformed;
  {
    Guard g(mu_);
    Segment* s = nullptr;
    status = check_write_through(client, m.uid, m.instance, m.offset, len, fabric::kRead, &s);
    if (status == WireStatus::kOk) {
      const std::byte* from = s->service.data() + m.offset;
      if (!unless_broken(from, len, [&] { copy_shared(buf + 1, from, len); })) {
        status = WireStatus::kBroken;
      }
    }
  }
  buf[0] = static_cast<std::byte>(status);
  parts_.server.reply(client.id, number, {buf, status == WireStatus::kOk ? 1 + len : 1});
}

// The runs have been checked: all of them are stored or nothing.
void Home::on_store(const fabric::ClientInfo& client, uint64_t number, const StoreRequest& m) {
  WireStatus status = WireStatus::kMalformed;
  {
    Guard g(mu_);
    Segment* s = nullptr;
    status = check_write_through(client, m.uid, m.instance, m.offset, m.end(), fabric::kWrite, &s);
    if (status == WireStatus::kOk) {
      m.each_run([&](const StoreRequest::Run& run) {
        std::byte* to = s->service.data() + m.offset + run.at;
        const auto copy = [&] { copy_shared(to, run.bytes.data(), run.bytes.size()); };
        if (!unless_broken(to, run.bytes.size(), copy)) status = WireStatus::kBroken;
      });
    }
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  fault_point("through_before_reply");
  reply(parts_.server, client.id, number, status);
}

void Home::on_swap(const fabric::ClientInfo& client, uint64_t number, const SwapRequest& m) {
  const size_t size = m.size;
  std::byte found[SwapRequest::kMost] = {};
  WireStatus status = WireStatus::kMalformed;
  {
    Guard g(mu_);
    Segment* s = nullptr;
    status = check_write_through(client, m.uid, m.instance, m.offset, size,
                                 fabric::kRead | fabric::kWrite, &s);
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
  fault_point("through_before_reply");
  reply(parts_.server, client.id, number, status,
        status == WireStatus::kOk ? Bytes(found, size) : Bytes());
}

}  // namespace cmi::memory
