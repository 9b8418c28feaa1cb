// The bus between the contexts of a node.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>
#include <memory>

#include "core/base/fd.hpp"
#include "node_support.hpp"
#include "support/skip.hpp"

namespace cmi::test::bus_test {
namespace {

using node::ContextSlot;
using node::Node;

std::unique_ptr<Node> join(const node::Config& c, ContextId id = random_context_id()) {
  auto n = Node::join(c, id);
  REQUIRE(n);
  return n.take();
}

TEST_CASE("a datagram reaches another process with its sender, and so does the answer") {
  NodeFolder folder;
  auto me = join(folder.config());
  Child c([&](Child&) {
    auto n = Node::join(folder.config(), random_context_id());
    CHILD_CHECK(n);
    CHILD_CHECK(ok((*n)->bus().send(me->slot(), bytes("hello"))));
    pollfd p{(*n)->bus().fd(), POLLIN, 0};
    CHILD_CHECK(poll(&p, 1, 30000) == 1);
    auto d = (*n)->bus().receive();
    CHILD_CHECK(d && text(d->bytes) == "answer" && d->from == me->slot());
  });
  pollfd p{me->bus().fd(), POLLIN, 0};
  REQUIRE(poll(&p, 1, 30000) == 1);
  auto d = me->bus().receive();
  REQUIRE(d);
  CHECK(text(d->bytes) == "hello");
  CHECK_FALSE(d->fd);
  CHECK(me->members().living().size() == 2);
  CHECK(me->bus().send(d->from, bytes("answer")) == Status::kOk);
  CHECK(c.succeeded());
  CHECK(me->bus().receive().status() == Status::kReconfig);
}

TEST_CASE("a descriptor travels with a datagram and arrives close-on-exec") {
  NodeFolder folder;
  auto a = join(folder.config()), b = join(folder.config());
  auto file = a->segments().anonymous_file(4096, true);
  REQUIRE(file);
  REQUIRE(pwrite(file->get(), "inside", 6, 0) == 6);
  REQUIRE(a->bus().send(b->slot(), bytes("take this"), file->get()) == Status::kOk);
  auto d = b->bus().receive();
  REQUIRE(d);
  REQUIRE(d->fd);
  char buf[6];
  REQUIRE(pread(d->fd.get(), buf, 6, 0) == 6);
  CHECK(std::string(buf, 6) == "inside");
  CHECK((fcntl(d->fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(a->bus().send(b->slot(), bytes("x"), 100000) == Status::kInval);  // no such descriptor
}

TEST_CASE("the longest datagram fits and a longer one is refused") {
  NodeFolder folder;
  auto a = join(folder.config()), b = join(folder.config());
  std::string most(node::Bus::kMaxDatagram, 'm');
  CHECK(a->bus().send(b->slot(), bytes(most)) == Status::kOk);
  CHECK(a->bus().send(b->slot(), {}) == Status::kOk);
  CHECK(a->bus().send(b->slot(), bytes(most + "x")) == Status::kInval);
  CHECK(text(b->bus().receive()->bytes) == most);
  CHECK(b->bus().receive()->bytes.empty());
}

TEST_CASE("a full queue says try again and loses nothing") {
  NodeFolder folder;
  auto a = join(folder.config()), b = join(folder.config());
  int sent = 0;
  Status s = Status::kOk;
  while (sent < 100000 && ok(s = a->bus().send(b->slot(), bytes(std::to_string(sent))))) ++sent;
  CHECK(s == Status::kReconfig);
  REQUIRE(sent > 0);
  for (int i = 0; i < sent; ++i) {
    auto d = b->bus().receive();
    REQUIRE(d);
    REQUIRE(text(d->bytes) == std::to_string(i));
  }
  CHECK(b->bus().receive().status() == Status::kReconfig);
  CHECK(a->bus().send(b->slot(), bytes("again")) == Status::kOk);
}

TEST_CASE("nobody is reached where no context is, or none any more") {
  NodeFolder folder;
  auto a = join(folder.config());
  CHECK(a->bus().send(ContextSlot{77}, bytes("x")) == Status::kInval);
  CHECK(a->bus().send(ContextSlot{UINT32_MAX}, bytes("x")) == Status::kInval);
  auto b = join(folder.config());
  ContextSlot left = b->slot();
  b.reset();
  CHECK(a->bus().send(left, bytes("x")) == Status::kInval);
  Child c([&](Child& self) {
    auto n = Node::join(folder.config(), random_context_id());
    CHILD_CHECK(n);
    self.say(static_cast<int64_t>((*n)->slot()));
    self.hear();
  });
  ContextSlot killed{static_cast<uint32_t>(c.hear())};
  c.kill();
  CHECK(a->bus().send(killed, bytes("x")) == Status::kInval);  // not reaped yet
}

// What a stranger's socket sends to `slot`, with whatever bytes it likes.
void send_raw(const NodeFolder& folder, ContextSlot slot, Bytes content, int fds = 0) {
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  std::string path = folder.node_dir() + "/bus-" + std::to_string(static_cast<uint32_t>(slot));
  CHILD_CHECK(path.size() < sizeof a.sun_path);
  std::memcpy(a.sun_path, path.c_str(), path.size());
  CHILD_CHECK(connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0);
  if (fds < 0) CHILD_CHECK(setresuid(65534, 65534, 65534) == 0);
  iovec iov{const_cast<std::byte*>(content.data()), content.size()};
  msghdr m{};
  m.msg_iov = &iov;
  m.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
  if (fds > 0) {
    m.msg_control = control;
    m.msg_controllen = CMSG_SPACE(static_cast<size_t>(fds) * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(static_cast<size_t>(fds) * sizeof(int));
    for (int i = 0; i < fds; ++i) std::memcpy(CMSG_DATA(c) + i * 4, &fd, sizeof fd);
  }
  CHILD_CHECK(sendmsg(fd, &m, 0) == static_cast<ssize_t>(content.size()));
  close(fd);
}

struct RawHead {
  uint32_t magic = 0x73756263, slot = 0;
  uint64_t hi = 0, lo = 0;
  char body[4] = {'b', 'o', 'd', 'y'};
  Bytes bytes() const { return std::as_bytes(std::span(this, 1)).first(28); }
};

size_t open_descriptors() {
  size_t n = 0;
  for (auto& e : std::filesystem::directory_iterator("/proc/self/fd")) {
    static_cast<void>(e);
    ++n;
  }
  return n;
}

TEST_CASE("datagrams of strangers are dropped, with the descriptors they carry") {
  NodeFolder folder;
  ContextId id = random_context_id();
  auto a = join(folder.config()), b = join(folder.config(), id);
  size_t before = open_descriptors();
  RawHead good;
  good.slot = static_cast<uint32_t>(b->slot());
  good.hi = id.hi;
  good.lo = id.lo;
  auto dropped = [&](const RawHead& h, int fds = 0) {
    send_raw(folder, a->slot(), h.bytes(), fds);
    return a->bus().receive().status() == Status::kReconfig;
  };
  send_raw(folder, a->slot(), good.bytes());
  auto d = a->bus().receive();
  REQUIRE(d);  // what the others differ from
  CHECK(text(d->bytes) == "body");
  RawHead h = good;
  h.magic = 1;
  CHECK(dropped(h));
  h = good;
  h.slot = UINT32_MAX;
  CHECK(dropped(h));
  h = good;
  h.slot = static_cast<uint32_t>(a->slot());
  CHECK(dropped(h));
  h = good;
  h.lo ^= 1;
  CHECK(dropped(h));
  CHECK(dropped(good, 2));
  CHECK(dropped(good, 16));
  send_raw(folder, a->slot(), good.bytes().first(23));
  CHECK(a->bus().receive().status() == Status::kReconfig);
  std::string too_long(node::Bus::kMaxDatagram + 25, 'x');
  send_raw(folder, a->slot(), bytes(too_long));
  CHECK(a->bus().receive().status() == Status::kReconfig);
  CHECK(open_descriptors() == before);
}

TEST_CASE("a datagram of another user is dropped, even with the right head") {
  if (geteuid() != 0) return skip("only root can become another user");
  NodeFolder folder;
  ContextId id = random_context_id();
  auto a = join(folder.config()), b = join(folder.config(), id);
  RawHead good;
  good.slot = static_cast<uint32_t>(b->slot());
  good.hi = id.hi;
  good.lo = id.lo;
  Child stranger([&](Child&) { send_raw(folder, a->slot(), good.bytes(), -1); });
  REQUIRE(stranger.succeeded());
  pollfd p{a->bus().fd(), POLLIN, 0};
  REQUIRE(poll(&p, 1, 30000) == 1);  // it did arrive
  CHECK(a->bus().receive().status() == Status::kReconfig);
}

TEST_CASE("the bus works in a runtime folder with a very long path") {
  NodeFolder folder;
  node::Config c = folder.config();
  std::filesystem::create_directory(c.runtime_dir);
  for (int i = 0; i < 5; ++i) {
    c.runtime_dir += "/" + std::string(200, static_cast<char>('a' + i));
    std::filesystem::create_directory(c.runtime_dir);
  }
  REQUIRE(chmod(c.runtime_dir.c_str(), 0700) == 0);
  auto a = join(c), b = join(c);
  CHECK(a->bus().send(b->slot(), bytes("far down")) == Status::kOk);
  CHECK(text(b->bus().receive()->bytes) == "far down");
}

}  // namespace
}  // namespace cmi::test::bus_test
