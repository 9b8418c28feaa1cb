// See local_channel.hpp.
#include "core/node/local_channel.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/node/bus.hpp"

namespace cmi::node {

namespace {
// Ours alone, as open_folder() wants it of a node's folder.
Result<Folder> existing_folder(const std::string& path) {
  Folder folder;
  folder.dir.reset(::open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st {};
  if (!folder.dir || ::fstat(folder.dir.get(), &st) != 0 || st.st_uid != ::geteuid() ||
      (st.st_mode & 077) != 0) {
    return Status::kInval;
  }
  return folder;
}

std::vector<Fd> take_descriptors(msghdr& m) {
  std::vector<Fd> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < n; ++i) {
      int one;
      std::memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
      fds.emplace_back(one);
    }
  }
  return fds;
}
}  // namespace

Result<LocalChannel> LocalChannel::ask(const std::string& path, uint32_t slot, Bytes message,
                                       std::span<const int> fds) {
  auto folder = existing_folder(path);
  if (!folder) return folder.status();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return Status::kNoMem;
  }
  LocalChannel ours{Fd(ends[0])};
  const Fd theirs(ends[1]);
  if (!ours.send(message, fds)) return Status::kNoMem;
  if (Status s = send_channel(*folder, slot, theirs.get()); !ok(s)) return s;
  return ours;
}

bool LocalChannel::of_this_user() const {
  ucred other{};
  socklen_t size = sizeof other;
  return ::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 &&
         other.uid == ::geteuid();
}

Result<LocalChannel::Message> LocalChannel::receive(Deadline deadline) {
  Message message;
  message.bytes.resize(kMaxMessage);
  iovec iov{message.bytes.data(), message.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  for (;;) {
    msghdr m{};
    m.msg_iov = &iov;
    m.msg_iovlen = 1;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(socket_.get(), &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n >= 0) {
      message.fds = take_descriptors(m);
      if (n == 0 || (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return Status::kInval;
      message.bytes.resize(static_cast<size_t>(n));
      return message;
    }
    if (errno != EAGAIN && errno != EINTR) return Status::kInval;
    if (deadline.passed()) return Status::kReconfig;
    pollfd wait{socket_.get(), POLLIN, 0};
    const Nanos left = std::max<Nanos>(deadline.left(), 0);
    const timespec ts{left / kSecond, left % kSecond};
    (void)::ppoll(&wait, 1, &ts, nullptr);
  }
}

bool LocalChannel::send(Bytes message, std::span<const int> fds) {
  iovec iov{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  msghdr m{};
  m.msg_iov = &iov;
  m.msg_iovlen = 1;
  if (!fds.empty()) {
    m.msg_control = control;
    m.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* const c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  ssize_t n;
  do {
    n = ::sendmsg(socket_.get(), &m, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(message.size());
}

}  // namespace cmi::node
