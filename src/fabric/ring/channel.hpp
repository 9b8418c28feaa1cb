// Messages between two processes of one machine: a ring in shared memory for each direction
// (byte_ring.hpp), and a pair of sockets, over which a side that sleeps is woken and which the
// kernel closes when a process ends. One side makes a channel and passes what belongs to the other
// one by whatever way it has; the other takes it after a look at what it is.
//
// Why a socket and not an eventfd: a write to an eventfd may wait, and whether it may is a flag
// that both processes can change; a send with MSG_DONTWAIT never waits. And the socket says when
// the other side has gone.
//
// A channel ends when the other side does, or when something impossible is found in the memory. It
// says so in the trace, and to the other side by the socket. Nothing is sent or received any more,
// and the callers go on by another way: as with a connection that is lost, they do not know what
// has arrived. What the other side had sent when it went is handed out before: until then the
// channel is not over, though nothing is sent any more.
//
// Threads: any. Nothing here waits for what the other side does or leaves undone. One that means
// harm can have this side wait in two places all the same: it can hold the lock of the taker's
// socket, of which it may have kept a duplicate, and it can send descriptors that are slow to close
// (doc/design/security.md).
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/fd.hpp"
#include "core/base/lock.hpp"
#include "core/base/open_sockets.hpp"
#include "core/base/status.hpp"
#include "fabric/frame.hpp"
#include "fabric/lock_order.hpp"
#include "fabric/ring/byte_ring.hpp"

namespace cmi::fabric::ring {

class Channel;

class ChannelSink {
 public:
  virtual ~ChannelSink() = default;
  // On a thread that polls, with no lock of the channel held; several may be in here at once. The
  // bytes are a copy that is valid during the call.
  virtual void on_ring_message(Channel& from, Bytes message) = 0;
};

// Those of a context: a forked child would keep them open when its parent dies.
using Sockets = OpenSockets<4096>;

class Channel {
 public:
  // What the other side is given.
  struct Passed {
    Fd memory, socket;
  };
  struct Made {
    std::unique_ptr<Channel> channel;
    Passed passed;
  };
  // kNoMem: there is no memory, or there are no descriptors.
  // `sockets`: where ours is listed, and which outlives the channel; null: nowhere.
  static Result<Made> make(Sockets* sockets = nullptr);
  // kInval: it is not what make() makes. kNoMem: there is no memory.
  static Result<std::unique_ptr<Channel>> take(Passed passed, Sockets* sockets = nullptr);
  ~Channel();

  // Copies the frame. Where the ring is full it waits in this process, in order and for so long as
  // a frame of a Port may. False: it is lost, since the channel has ended or far too much waits.
  bool send(const Frame& frame);
  // Sends what has waited, and a wake-up that the kernel had no memory for. Cheap when there is
  // nothing. Returns frames that were sent.
  int pump();
  bool idle() const {
    return (nothing_waits() && !wake_lost_.load(std::memory_order_relaxed)) || !open();
  }

  // Hands out what has come, for Endpoint::kStretch and up to a number, and returns how many
  // messages. The rest is handed out by later polls, and nobody may sleep until then. Returns at
  // once where another thread takes one.
  int poll(ChannelSink& sink);
  // The descriptor polls readable when there is something to do; -1: the channel has ended. Only to
  // be trusted between may_sleep() == true and the next poll().
  int wait_fd() const { return ended() ? -1 : socket_.get(); }
  bool may_sleep();
  bool ended() const { return state_.load(std::memory_order_acquire) == State::kEnded; }
  void end(const char* why);
  // It has ended, and the other side is to blame: no other one should be made with it.
  bool lied() const { return lied_.load(std::memory_order_relaxed); }

 private:
  static constexpr Nanos kSendLife = 10 * kSecond;
  static constexpr size_t kMostWaiting = 32768, kMostBytesWaiting = size_t{64} << 20;
  static constexpr int kMostAtOnce = 32;
  static constexpr size_t kLittle = 1024;  // messages of so many bytes are copied to the stack

  enum class Side : uint8_t { kMaker, kTaker };
  // kGone: the other side is, and what it has sent may still be in the ring.
  enum class State : uint8_t { kOpen, kGone, kEnded };
  Channel(Mapping map, Fd socket, Side side, Sockets* sockets);
  static Result<Mapping> map(const Fd& memory);
  RingWriter::Put put(std::span<const Bytes> parts) CMI_REQUIRES(send_mu_);
  bool keep(const Frame& frame) CMI_REQUIRES(send_mu_);
  int pump_locked() CMI_REQUIRES(send_mu_);
  bool open() const { return state_.load(std::memory_order_acquire) == State::kOpen; }
  bool gone() const { return state_.load(std::memory_order_acquire) == State::kGone; }
  void found_gone();
  bool nothing_waits() const { return waiting_count_.load(std::memory_order_relaxed) == 0; }
  bool owes_wake_up() CMI_REQUIRES(send_mu_);
  void take_wake_ups();
  void wake();
  void found_lie();

  const Mapping map_;
  const Fd socket_;
  Sockets* const sockets_;
  Mutex send_mu_ CMI_ACQUIRED_AFTER(lock_order::after_tables)
      CMI_ACQUIRED_BEFORE(lock_order::after_ports);
  RingWriter writer_ CMI_GUARDED_BY(send_mu_);
  struct Waiting {
    std::vector<std::byte> bytes;
    Nanos expires = 0;
  };
  std::deque<Waiting> waiting_ CMI_GUARDED_BY(send_mu_);
  size_t bytes_waiting_ CMI_GUARDED_BY(send_mu_) = 0;
  std::atomic<size_t> waiting_count_{0};
  std::atomic<bool> wake_lost_{false};
  Mutex receive_mu_ CMI_ACQUIRED_AFTER(lock_order::after_bound);  // tried, never waited for
  RingReader reader_ CMI_GUARDED_BY(receive_mu_);
  std::atomic<State> state_{State::kOpen};  // only ever grows
  std::atomic<bool> lied_{false};
};

}  // namespace cmi::fabric::ring
