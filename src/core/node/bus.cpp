// Addresses of sockets go through the folder's
// descriptor in /proc, so that they fit whatever the runtime folder's path is: that of the calling
// thread, since /proc/self shows nothing once the first thread has ended.
// A datagram's head names its sender. The name is believed when the kernel says that the user is
// ours and the registry has this context in that slot.
#include "core/node/bus.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/base/cause.hpp"

namespace cmi::node {

namespace {
struct Head_wire {  // never leaves the machine
  uint32_t magic;
  uint32_t slot;
  uint64_t id_hi, id_lo;
};
static_assert(sizeof(Head_wire) == 24);
constexpr uint32_t kBusMagic = 0x73756263;
constexpr uint32_t kQuestionMagic = 0x6b736163;  // of no member: slot and id mean nothing
constexpr uint32_t kChannelMagic = 0x6c736163;   // the same
constexpr int kMaxFds = 4;       // room for what a careless sender may pass; only one is taken
constexpr int kMaxDropped = 64;  // datagrams thrown away in one receive

sockaddr_un bus_address(const Folder& folder, uint32_t slot) {
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  std::snprintf(a.sun_path, sizeof a.sun_path, "/proc/thread-self/fd/%d/%s", folder.dir.get(),
                bus_file_name(slot).text);
  return a;
}

// What came with a datagram beside its bytes. The first descriptor is kept, others are closed.
struct Ancillary {
  bool ours = false;
  int fds = 0;
  Fd fd;

  explicit Ancillary(msghdr& m) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
      if (c->cmsg_level != SOL_SOCKET) continue;
      if (c->cmsg_type == SCM_CREDENTIALS) {
        ucred cred;
        std::memcpy(&cred, CMSG_DATA(c), sizeof cred);
        ours = cred.uid == geteuid();
      } else if (c->cmsg_type == SCM_RIGHTS) {
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; ++i) {
          int one;
          std::memcpy(&one, CMSG_DATA(c) + i * sizeof one, sizeof one);
          Fd owned(one);
          if (fds++ == 0) fd = std::move(owned);
        }
      }
    }
  }
};
}  // namespace

Status Bus::open() {
  const Folder& folder = seat_.registry->folder();
  const uint32_t slot = seat_.slot;
  Fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return status_of_errno(errno);
  if (access("/proc/thread-self/fd", F_OK) != 0) {
    return because(Status::kNotSupp, "/proc is not mounted (mount -t proc proc /proc)");
  }
  int on = 1;
  unlinkat(folder.dir.get(), bus_file_name(slot).text, 0);
  sockaddr_un a = bus_address(folder, slot);
  // The mode before bind is the mode of the file.
  if (setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      fchmod(fd.get(), 0600) != 0 ||
      bind(fd.get(), reinterpret_cast<sockaddr*>(&a), sizeof a) != 0) {
    int err = errno;
    note(kFacIni, kError, "node: no bus socket for slot {}: errno {}", slot, err);
    return status_of_errno(err);
  }
  socket_ = std::move(fd);
  return Status::kOk;
}

namespace {
Status send_datagram(int socket, const Folder& folder, uint32_t slot, Head_wire head, Bytes message,
                     int pass_fd) {
  iovec iov[2] = {{&head, sizeof head}, {const_cast<std::byte*>(message.data()), message.size()}};
  sockaddr_un a = bus_address(folder, slot);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr m{};
  m.msg_name = &a;
  m.msg_namelen = sizeof a;
  m.msg_iov = iov;
  m.msg_iovlen = 2;
  if (pass_fd >= 0) {
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &pass_fd, sizeof pass_fd);
  }
  for (;;) {
    if (sendmsg(socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return Status::kOk;
    switch (errno) {
      case EINTR:
        continue;
      case EAGAIN:
      case ENOBUFS:
      case ENOMEM:
      case ETOOMANYREFS:
        return Status::kReconfig;
      default:
        return Status::kInval;  // ECONNREFUSED, ENOENT: it has gone; EBADF: no descriptor
    }
  }
}
}  // namespace

Status Bus::send(ContextSlot to, Bytes message, int pass_fd) {
  uint32_t slot = static_cast<uint32_t>(to);
  if (message.size() > kMaxDatagram || !seat_.registry->member(slot)) return Status::kInval;
  return send_datagram(socket_.get(), seat_.registry->folder(), slot,
                       {kBusMagic, seat_.slot, seat_.self.hi, seat_.self.lo}, message, pass_fd);
}

static Status send_of_no_member(uint32_t magic, const Folder& folder, uint32_t slot, int pass_fd) {
  Fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return status_of_errno(errno);
  return send_datagram(fd.get(), folder, slot, {magic, 0, 0, 0}, {}, pass_fd);
}

Status send_question(const Folder& folder, uint32_t slot, int pass_fd) {
  return send_of_no_member(kQuestionMagic, folder, slot, pass_fd);
}

Status send_channel(const Folder& folder, uint32_t slot, int pass_fd) {
  return send_of_no_member(kChannelMagic, folder, slot, pass_fd);
}

Bus::Address Bus::address() const {
  const Folder& folder = seat_.registry->folder();
  return {folder.runtime_dir + "/" + folder.name.text, seat_.slot};
}

Result<Bus::Datagram> Bus::receive() {
  for (int dropped = 0; dropped < kMaxDropped; ++dropped) {
    Head_wire head{};
    std::byte bytes[kMaxDatagram];
    iovec iov[2] = {{&head, sizeof head}, {bytes, sizeof bytes}};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(kMaxFds * sizeof(int))];
    msghdr m{};
    m.msg_iov = iov;
    m.msg_iovlen = 2;
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    ssize_t n = recvmsg(socket_.get(), &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN ? Status::kReconfig : Status::kInval;
    }
    Ancillary came(m);
    bool whole = (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
                 n >= static_cast<ssize_t>(sizeof head) && came.fds <= 1;
    const bool question = head.magic == kQuestionMagic && came.fds == 1;
    const bool channel = head.magic == kChannelMagic && came.fds == 1;
    const bool member = head.magic == kBusMagic &&
                        seat_.registry->member(head.slot, ContextId{head.id_hi, head.id_lo});
    if (!came.ours || !whole || !(question || channel || member)) {
      note(kFacCtrl, kWarn, "node: dropped a datagram of {} bytes", n);
      continue;
    }
    Datagram d;
    d.from = ContextSlot{head.slot};
    if (member) d.sender = {head.id_hi, head.id_lo};
    d.bytes.assign(bytes, bytes + (static_cast<size_t>(n) - sizeof head));
    d.fd = std::move(came.fd);
    d.question = question;
    d.channel = channel;
    return d;
  }
  return Status::kReconfig;  // still readable: the caller's loop comes back
}

}  // namespace cmi::node
