// See send_guard.hpp.
#include "fabric/ofi/send_guard.hpp"

#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "core/base/careful_copy.hpp"
#include "core/base/clock.hpp"
#include "fabric/ofi/call_table.hpp"

namespace cmi::fabric::ofi {

namespace {

// After a copy that could not read all of its source, nobody knows which socket the rest is waiting
// for: until then every one that is used is cut. They are made anew.
constexpr Nanos kCutAll = 100 * kMilli;
std::atomic<Nanos> g_cut_all_until{0};

bool cut(int socket) {
  ::shutdown(socket, SHUT_RDWR);
  errno = EFAULT;
  return false;
}

[[gnu::hot]] bool may_send(int socket) {
  const Nanos until = g_cut_all_until.load(std::memory_order_acquire);
  return until == 0 || now() > until || cut(socket);
}

[[gnu::hot]] ssize_t guarded_send(int socket, const void* bytes, size_t length, int flags) {
  if (!may_send(socket)) return -1;
  const ssize_t sent = ::send(socket, bytes, length, flags);
  if (sent < 0 && errno == EFAULT) cut(socket);
  return sent;
}

ssize_t guarded_sendmsg(int socket, const msghdr* message, int flags) {
  if (!may_send(socket)) return -1;
  const ssize_t sent = ::sendmsg(socket, message, flags);
  if (sent < 0 && errno == EFAULT) cut(socket);
  return sent;
}

// Headers and the like, for which the careful way takes longer; no payload ends in so small a
// piece.
constexpr size_t kSmall = 128;

[[gnu::hot]] void* guarded_memcpy(void* to, const void* from, size_t n) {
  if (n == 0) return to;  // an empty message may lie nowhere
  if (n <= kSmall) return std::memcpy(to, from, n);
  const uint64_t before = g_incomplete_writes.load(std::memory_order_relaxed);
  const size_t left = careful_copy(to, from, n);
  // Where only the destination is broken, it is asked for when the write is announced.
  if (left != 0 && g_incomplete_writes.load(std::memory_order_relaxed) == before) {
    g_cut_all_until.store(now() + kCutAll, std::memory_order_release);
  }
  return to;
}

}  // namespace

bool guard_sends(const void* function) {
  CallTable table(function);
  const int sends = table.replace("send", reinterpret_cast<void*>(&guarded_send));
  const int messages = table.replace("sendmsg", reinterpret_cast<void*>(&guarded_sendmsg));
  table.replace("memcpy", reinterpret_cast<void*>(&guarded_memcpy));
  return sends > 0 && messages > 0;
}

}  // namespace cmi::fabric::ofi
