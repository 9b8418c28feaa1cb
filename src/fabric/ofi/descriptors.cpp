// See descriptors.hpp.
#include "fabric/ofi/descriptors.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "core/base/log.hpp"

namespace cmi::fabric::ofi {

namespace {
// /proc/self shows none once the first thread has ended.
constexpr const char* kOwnDescriptors = "/proc/thread-self/fd";

struct Inherited {
  int fd;
  int flags;
};
std::vector<Inherited> inherited() {
  std::vector<Inherited> out;
  DIR* dir = opendir(kOwnDescriptors);
  if (dir == nullptr) return out;
  while (dirent* e = readdir(dir)) {
    if (e->d_name[0] == '.') continue;
    const int fd = std::atoi(e->d_name);
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) out.push_back({fd, flags});
  }
  closedir(dir);
  return out;
}

bool is_a_provider_kind(int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0) return false;
  // Anonymous inodes have no file type at all.
  return S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode) || (st.st_mode & S_IFMT) == 0;
}

// What tells one internet address and port from another; empty for anything else.
std::string name_of(Bytes address) {
  const auto text = [&](size_t from, size_t len) {
    return std::string(reinterpret_cast<const char*>(address.data()) + from, len);
  };
  sa_family_t family = AF_UNSPEC;
  if (address.size() < sizeof family) return {};
  std::memcpy(&family, address.data(), sizeof family);
  if (family == AF_INET && address.size() >= sizeof(sockaddr_in))
    return text(offsetof(sockaddr_in, sin_port), 2) + text(offsetof(sockaddr_in, sin_addr), 4);
  if (family == AF_INET6 && address.size() >= sizeof(sockaddr_in6))
    return text(offsetof(sockaddr_in6, sin6_port), 2) + text(offsetof(sockaddr_in6, sin6_addr), 16);
  return {};
}

using NameCall = int (*)(int, sockaddr*, socklen_t*);
std::string end_of(int fd, NameCall call) {
  std::byte raw[sizeof(sockaddr_in6)] = {};
  socklen_t len = sizeof raw;
  if (call(fd, reinterpret_cast<sockaddr*>(raw), &len) != 0) return {};
  return name_of(Bytes(raw, std::min<size_t>(len, sizeof raw)));
}
}  // namespace

CloseOnExec::CloseOnExec() {
  for (auto [fd, flags] : inherited()) {
    if (fd < kMost) before_.set(static_cast<size_t>(fd));
  }
}

CloseOnExec::~CloseOnExec() {
  for (auto [fd, flags] : inherited()) {
    if (fd >= kMost || before_.test(static_cast<size_t>(fd)) || !is_a_provider_kind(fd)) continue;
    fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
  }
}

namespace {
bool is_tcp(int fd) {
  int type = 0, protocol = 0;
  socklen_t len = sizeof type;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM &&
         getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &len) == 0 &&
         (protocol == IPPROTO_TCP || protocol == IPPROTO_MPTCP);
}

// Sockets whose near end is this address, and whether each listens. Ports of other protocols are
// other ports.
template <class Found>
void for_each_at(const std::string& name, Found found) {
  const auto look_at = [&](int fd) {
    if (end_of(fd, getsockname) != name || !is_tcp(fd)) return;
    int listens = 0;
    socklen_t len = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) == 0) found(fd, listens != 0);
  };
  if (DIR* dir = opendir(kOwnDescriptors); dir != nullptr) {
    while (dirent* e = readdir(dir)) {
      if (e->d_name[0] != '.') look_at(std::atoi(e->d_name));
    }
    closedir(dir);
  } else {
    // There is no descriptor left for the list itself.
    for (int fd = 0; fd < CloseOnExec::kMost; ++fd) look_at(fd);
  }
}
}  // namespace

Accepted::Accepted(Bytes address) : name_(name_of(address)) {
  if (name_.empty()) return;
  for_each_at(name_, [this](int fd, bool listens) {
    // What waits to be accepted is refused. The socket keeps its name.
    if (listens && ::shutdown(fd, SHUT_RD) == 0) listened_.push_back(fd);
  });
}

size_t Accepted::shut_down() {
  if (name_.empty()) return 0;
  size_t accepted = 0;
  for_each_at(name_, [&](int fd, bool) {
    if (std::count(listened_.begin(), listened_.end(), fd) != 0) return;
    ::shutdown(fd, SHUT_RDWR);
    ++accepted;
  });
  return accepted;
}

namespace {
struct Heard {
  bool nothing = false;  // but, at most, the end of what may come, which counts as a byte
  bool little = false;   // too little for a connection to have come of it
  bool left = false;     // the other side has closed, this one has not
  bool over = false;     // on both sides
};
Heard heard_on(int fd) {
  tcp_info info{};
  socklen_t len = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0) return {};
  constexpr socklen_t kNeeded = offsetof(tcp_info, tcpi_bytes_received) + sizeof(uint64_t);
  constexpr uint8_t kClosed = 7, kCloseWait = 8;  // TCP_CLOSE, TCP_CLOSE_WAIT
  constexpr uint64_t kFirst = 256;                // of a first message, which makes a connection
  const uint64_t bytes = len >= kNeeded ? info.tcpi_bytes_received : kFirst;
  return {bytes <= 1, bytes < kFirst, info.tcpi_state == kCloseWait, info.tcpi_state == kClosed};
}

ino_t number_of(int fd) {
  struct stat st;
  return ::fstat(fd, &st) == 0 ? st.st_ino : 0;
}
}  // namespace

size_t Strangers::end(Bytes address, bool forgetful) {
  const std::string name = name_of(address);
  if (name.empty()) return 0;
  Sockets seen, shut;
  std::vector<int> forgotten;
  for_each_at(name, [&](int fd, bool listens) {
    const Heard heard = listens ? Heard{} : heard_on(fd);
    const std::pair one(fd, number_of(fd));
    const bool shut_here = heard.little && shut_.contains(one);
    if (!heard.nothing && !heard.left && !shut_here) return;
    if (heard.over && shut_here) {
      forgotten.push_back(fd);
    } else if (heard.over) {
      shut.insert(one);
    } else if (seen_.contains(one)) {
      ::shutdown(fd, SHUT_RDWR);
      shut.insert(one);
    } else {
      seen.insert(one);
    }
  });
  if (forgetful) {
    for (const int fd : forgotten) ::close(fd);
  }
  seen_.swap(seen);
  shut_.swap(shut);
  return shut_.size() + forgotten.size();
}

void Connections::add(Bytes address) {
  std::string name = name_of(address);
  if (name.empty()) return;
  Guard g(mu_);
  ours_.insert(std::move(name));
}

void Connections::remove(Bytes address) {
  const std::string name = name_of(address);
  Guard g(mu_);
  if (auto it = ours_.find(name); it != ours_.end()) ours_.erase(it);
}

[[gnu::hot]] void Connections::mark_now_and_then() {
  // In the fault handler every microsecond is the client's; another call will come.
  if (t_in_fault_handler) return;
  const Nanos t = now_or_a_tick_ago();
  Nanos due = next_.load(std::memory_order_relaxed);
  if (t < due) return;
  if (!next_.compare_exchange_strong(due, t + kEvery, std::memory_order_relaxed)) return;
  if (!mu_.try_lock()) return;
  for (auto [fd, flags] : inherited()) {
    if (!is_a_provider_kind(fd)) continue;
    if (ours_.contains(end_of(fd, getsockname)) || ours_.contains(end_of(fd, getpeername)))
      fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
  }
  mu_.unlock();
}

}  // namespace cmi::fabric::ofi
