// See channel.hpp.
#include "fabric/ring/channel.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <array>
#include <cerrno>

#include "core/base/fault_point.hpp"
#include "core/base/log.hpp"
#include "fabric/fabric.hpp"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83  // 6.16
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // 5.14
#endif

namespace cmi::fabric::ring {

namespace {
constexpr size_t kHead = 4096;  // the words of both rings
constexpr size_t kSize = kHead + 2 * kRingBytes;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
// Of a socket, at each look: a peer that sends more of them costs itself as much as us.
constexpr int kMostWakeUps = 16;
constexpr const char* kIsGone = "the other side is gone";
static_assert(2 * sizeof(RingWords) <= kHead);
// What a side that ends a channel says it has written: more than can be.
constexpr uint64_t kClosed = 0 - uint64_t{8};

RingWords& words_of(const Mapping& map, int ring) {
  return reinterpret_cast<RingWords*>(map.data())[ring];
}
std::byte* bytes_of(const Mapping& map, int ring) {
  return map.data() + kHead + static_cast<size_t>(ring) * kRingBytes;
}

// Descriptors that come with a wake-up are closed by the receiver, and to close one may wait
// (SO_LINGER). Where the kernel can (Linux 6.16) it takes none for this socket. A process
// that has a duplicate can undo that; of the maker's end nobody has one.
void refuse_descriptors(const Fd& socket) {
  const int no = 0;
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
}
}  // namespace

// The maker writes to the first ring.
Channel::Channel(Mapping map, Fd socket, Side side, Sockets* sockets)
    : map_(std::move(map)),
      socket_(std::move(socket)),
      sockets_(sockets),
      writer_(words_of(map_, side == Side::kMaker ? 0 : 1),
              bytes_of(map_, side == Side::kMaker ? 0 : 1)),
      reader_(words_of(map_, side == Side::kMaker ? 1 : 0),
              bytes_of(map_, side == Side::kMaker ? 1 : 0)) {
  refuse_descriptors(socket_);
  if (sockets_ != nullptr) sockets_->add(socket_.get());
}

Channel::~Channel() {
  if (sockets_ != nullptr) sockets_->remove(socket_.get());
}

Result<Mapping> Channel::map(const Fd& memory) {
  void* const at = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (at == MAP_FAILED) return Status::kNoMem;
  Mapping mapping(at, kSize);
  madvise(at, kSize, MADV_DONTFORK);
  // Unlike MAP_POPULATE it says when a page cannot be had. Unlike fallocate() it takes no lock of
  // the file's: a write of the other side's can hold that for as long as it likes.
  if (madvise(at, kSize, MADV_POPULATE_WRITE) != 0) return Status::kNoMem;
  return mapping;
}

Result<Channel::Made> Channel::make(Sockets* sockets) {
  Fd memory(memfd_create("cmi-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  int ends[2];
  if (!memory || ftruncate(memory.get(), kSize) != 0 ||
      posix_fallocate(memory.get(), 0, kSize) != 0 ||
      fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0 ||
      ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return Status::kNoMem;
  }
  Fd ours(ends[0]), theirs(ends[1]);
  auto mapped = map(memory);
  if (!mapped) return mapped.status();
  Made made;
  made.channel.reset(new Channel(mapped.take(), std::move(ours), Side::kMaker, sockets));
  made.passed = {std::move(memory), std::move(theirs)};
  return made;
}

// A file of such a kind and seals keeps its size, whatever the other side does to it. Its pages are
// there from the beginning, since map() gets those that the other side has left out. It can still
// punch a hole: the kernel then gets new pages when they are touched, and raises SIGBUS only where
// it has none (doc/design/security.md). A send to such a socket does not wait, and does nothing
// else than wake its owner.
Result<std::unique_ptr<Channel>> Channel::take(Passed passed, Sockets* sockets) {
  struct stat st {};
  struct statfs fs {};
  int domain = 0, type = 0;
  socklen_t size = sizeof domain;
  const int seals = passed.memory ? fcntl(passed.memory.get(), F_GET_SEALS) : -1;
  if (seals < 0 || (seals & kSeals) != kSeals || (seals & F_SEAL_WRITE) != 0 ||
      fstat(passed.memory.get(), &st) != 0 || st.st_size != static_cast<off_t>(kSize) ||
      fstatfs(passed.memory.get(), &fs) != 0 || fs.f_type != TMPFS_MAGIC ||
      getsockopt(passed.socket.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 ||
      getsockopt(passed.socket.get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0 ||
      domain != AF_UNIX || type != SOCK_SEQPACKET) {
    return Status::kInval;
  }
  auto mapped = map(passed.memory);
  if (!mapped) return mapped.status();
  return std::unique_ptr<Channel>(
      new Channel(mapped.take(), std::move(passed.socket), Side::kTaker, sockets));
}

void Channel::end(const char* why) {
  if (state_.exchange(State::kEnded, std::memory_order_acq_rel) == State::kEnded) return;
  trace(kFacMem, kInfo, "ring: messages of this machine go over the network: {}", why);
  // What the other side has not read is taken back, as a connection that is reset does.
  for (int ring : {0, 1}) words_of(map_, ring).written.store(kClosed);
  ::shutdown(socket_.get(), SHUT_RDWR);
}

RingWriter::Put Channel::put(std::span<const Bytes> parts) {
  const RingWriter::Put done = writer_.put(parts);
  if (done == RingWriter::Put::kCorrupt) found_lie();
  return done;
}

void Channel::found_lie() {
  if (words_of(map_, 0).written.load() == kClosed || words_of(map_, 1).written.load() == kClosed) {
    return end("the other side has ended it");
  }
  lied_.store(true, std::memory_order_relaxed);
  end("the other side has written what cannot be");
}

// What it has written before is in the ring, and is seen by each look from now on.
void Channel::found_gone() {
  State open = State::kOpen;
  state_.compare_exchange_strong(open, State::kGone, std::memory_order_acq_rel);
}

void Channel::wake() {
  constexpr char kByte = 0;
  const auto send_byte = [&]() -> int {
    if (fault_point_fails("ring_wake_up_lost")) return ENOBUFS;
    return ::send(socket_.get(), &kByte, sizeof kByte, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
  };
  int error;
  do {
    error = send_byte();
  } while (error == EINTR);
  // Full (EAGAIN): the other side has more wake-ups than it has taken.
  if (error == 0 || error == EAGAIN) return;
  if (error != ENOBUFS && error != ENOMEM) return found_gone();
  // The ring does not say any more that the reader sleeps, so this side has to remember it.
  wake_lost_.store(true, std::memory_order_relaxed);
}

bool Channel::owes_wake_up() {
  const bool lost = wake_lost_.load(std::memory_order_relaxed);
  if (lost) wake_lost_.store(false, std::memory_order_relaxed);
  return writer_.wakes_reader() || lost;
}

bool Channel::keep(const Frame& frame) {
  const size_t size = frame_size(frame);
  if (waiting_.size() >= kMostWaiting || bytes_waiting_ + size > kMostBytesWaiting) return false;
  Waiting w{std::vector<std::byte>(size), now() + kSendLife};
  Writer out(w.bytes);
  encode_frame(frame, out);
  waiting_.push_back(std::move(w));
  bytes_waiting_ += size;
  waiting_count_.store(waiting_.size(), std::memory_order_relaxed);
  return true;
}

bool Channel::send(const Frame& frame) {
  fault_point("ring_before_send");
  std::array<std::byte, kFrameHeader> header;
  Writer out(header);
  encode_frame_header(frame, out);
  const std::array<Bytes, 3> parts{out.done(), frame.payload, frame.more};
  bool sent = false, wakes = false;
  {
    Guard g(send_mu_);
    if (!nothing_waits()) pump_locked();
    // Behind what waits already.
    const auto done = !open()            ? RingWriter::Put::kCorrupt
                      : !nothing_waits() ? RingWriter::Put::kFull
                                         : put(parts);
    sent = done == RingWriter::Put::kDone || (done == RingWriter::Put::kFull && keep(frame));
    wakes = open() && owes_wake_up();
  }
  if (wakes) wake();
  return sent;
}

int Channel::pump_locked() {
  const Nanos t = now();
  int sent = 0;
  while (!waiting_.empty()) {
    Waiting& first = waiting_.front();
    if (open() && first.expires >= t) {
      const std::array<Bytes, 1> parts{Bytes(first.bytes)};
      const auto done = put(parts);
      if (done == RingWriter::Put::kFull) break;
      if (done == RingWriter::Put::kDone) ++sent;
    }
    bytes_waiting_ -= first.bytes.size();
    waiting_.pop_front();
  }
  waiting_count_.store(waiting_.size(), std::memory_order_relaxed);
  return sent;
}

int Channel::pump() {
  if (idle()) return 0;
  bool wakes = false;
  int sent = 0;
  {
    Guard g(send_mu_);
    sent = pump_locked();
    wakes = open() && (sent > 0 || wake_lost_.load(std::memory_order_relaxed)) && owes_wake_up();
  }
  if (wakes) wake();
  return sent;
}

int Channel::poll(ChannelSink& sink) {
  int taken = 0;
  Nanos begun = 0;
  while (taken < kMostAtOnce && !ended()) {
    std::array<std::byte, kLittle> little;
    std::unique_ptr<std::byte[]> large;
    Bytes message;
    const bool was_gone = gone();  // before the look, so that the look sees all that it has sent
    if (!receive_mu_.try_lock()) break;
    const RingReader::Next next = reader_.next();
    if (next == RingReader::Next::kMessage) {
      const size_t size = reader_.size();
      if (size > little.size()) large = std::make_unique_for_overwrite<std::byte[]>(size);
      std::byte* const to = large != nullptr ? large.get() : little.data();
      reader_.take(to);
      message = {to, size};
    }
    receive_mu_.unlock();
    if (next == RingReader::Next::kCorrupt) found_lie();
    if (next == RingReader::Next::kNothing && was_gone) end(kIsGone);
    if (next != RingReader::Next::kMessage) break;
    if (taken++ == 0) begun = now();  // a look that finds nothing asks for no time
    sink.on_ring_message(*this, message);
    if (now() - begun > Endpoint::kStretch) break;
  }
  return taken;
}

// Taken before the reader counts as asleep: what comes after that wakes it. Descriptors that come
// along are dropped, since there is no room for them.
void Channel::take_wake_ups() {
  for (int i = 0; i < kMostWakeUps; ++i) {
    char byte;
    const ssize_t n = ::recv(socket_.get(), &byte, sizeof byte, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) return found_gone();
  }
}

bool Channel::may_sleep() {
  if (ended()) return true;
  if (!receive_mu_.try_lock()) return false;
  const bool come = reader_.next() != RingReader::Next::kNothing;
  receive_mu_.unlock();
  if (come) return false;
  take_wake_ups();
  const bool was_gone = gone();
  if (!receive_mu_.try_lock()) return false;
  const bool may = reader_.may_sleep();
  receive_mu_.unlock();
  // The end is to be noticed now, but behind what was sent before it.
  if (may && was_gone) end(kIsGone);
  return may && open();
}

}  // namespace cmi::fabric::ring
