// The seam between libcmi and whatever moves bytes: a Fabric is one opened provider, an Endpoint is
// one address that can start operations and be their target. Everything above uses only this
// header; src/fabric/ofi implements it over libfabric, src/fabric/fake inside one process.
//
// Threads: every call may come from any thread, a SIGBUS handler included, except destructors: an
// Endpoint is destroyed while no other thread is inside it. (One that shares a queue waits for what
// another thread is handing out of it.) Nothing here blocks on a peer.
//
// What callers may rely on (the contract tests show each, for each implementation):
//  1. An accepted operation stays in flight until done() or until its Endpoint is gone. A provider
//     may never finish it: deadlines are the caller's, and a buffer whose operation did not finish
//     must not be reused before the Endpoint is destroyed. After that nothing touches it.
//  2. A write that is done with kOk lies in the target's memory.
//  3. A read, write or cas against a key that was never given, was closed, lacks the right or runs
//     out of bounds never succeeds and never touches memory. Its cause may be only a hint, and it
//     may take other operations of the same Endpoint toward the same peer down with it, no others.
//  4. Messages arrive whole, at most once each. A message sent before the peer is reachable is
//     refused with kAgain or fails; it is not half delivered.
//  5. Operations make progress only while somebody polls the initiating Endpoint, and at the target
//     while somebody polls the targeted Endpoint.
//  6. A poll hands out for kStretch, and what it is at then. The rest is handed out by later polls,
//     in its order. So a thread that polls comes to look at other things as well.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/codec.hpp"
#include "core/base/fd.hpp"
#include "core/base/status.hpp"

namespace cmi::fabric {

// Why an operation ended. Everything but kOk, kTimeout and kLocal is a hint: error numbers of
// providers do not tell a revoked key from a dead peer. The control plane decides.
enum class Cause : uint8_t {
  kOk,
  kRefused,    // the target (or its provider) said no
  kPeerLost,   // the connection ended or never came up
  kCancelled,  // went down with something else
  kTimeout,    // the caller's deadline passed; fate unknown
  kLocal,      // this side's provider or device failed
};
const char* cause_name(Cause c);

enum Right : uint32_t { kRead = 1, kWrite = 2, kAtomic = 4 };  // the values of CMI_ACC_*

// Where a remote registration is, in the terms its target's provider wants. Wire data.
struct RemoteKey {
  uint64_t key = 0;
  uint64_t base = 0;  // address of byte 0 where the provider uses virtual addresses, else 0
};

// One operation. Owned by the caller; must stay where it is from a successful post until done() or
// until the Endpoint is gone. May be used again once done.
class Op {
 public:
  using Callback = void (*)(Op&);  // on the polling thread, no lock of the Endpoint held

  explicit Op(Callback cb = nullptr, void* user_data = nullptr) : user(user_data), callback_(cb) {}
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  // Acquire: what the operation wrote is visible to whoever sees true.
  bool done() const { return state_.load(std::memory_order_acquire) == kDone; }
  bool in_flight() const {
    uint32_t s = state_.load(std::memory_order_acquire);
    return s == kPosted || s == kAwaited;
  }
  Cause cause() const { return cause_; }  // valid once done
  // Sleeps until done, at most so long. For waiters that poll by other means in between.
  void nap(Nanos at_most);

  // For implementations only.
  void begin() { state_.store(kPosted, std::memory_order_relaxed); }
  void revert() { state_.store(kIdle, std::memory_order_relaxed); }
  void complete(Cause c);

  void* user;                               // the caller's; untouched
  alignas(16) std::byte provider_area[80];  // the implementation's while in flight

 private:
  friend class Endpoint;
  enum : uint32_t { kIdle, kPosted, kAwaited, kDone };  // kAwaited: posted, and a waiter naps on it
  std::atomic<uint32_t> state_{kIdle};                  // kDone is stored with release after cause_
  Cause cause_ = Cause::kOk;
  Callback callback_;
};

enum class Post : uint8_t {
  kPosted,  // Op will complete, or be given up with the Endpoint
  kAgain,   // full, or not connected yet: poll and try again until a deadline
  kFailed,  // never will: Op is not in flight
};

// A peer's address as an Endpoint knows it. Valid for that Endpoint only.
enum class Peer : uint64_t {};

class Endpoint;

class Receiver {
 public:
  virtual ~Receiver() = default;
  // On a polling thread, with no lock of the Endpoint held; several threads that poll may be in
  // here at once. `message` is valid during the call. May post on the Endpoint; must not destroy
  // it.
  virtual void on_message(Endpoint& ep, Bytes message) = 0;
};

// Another way by which what a thread waits for at an Endpoint may come. A look is cheap: it enters
// the kernel only where a sleeper has been woken.
class OtherWay {
 public:
  virtual ~OtherWay() = default;
  virtual int look() = 0;  // as Endpoint::poll
  virtual bool may_sleep() = 0;
  virtual int wait_fd() const = 0;     // as that of an Endpoint
  virtual bool has_ended() const = 0;  // a waiter has to find out what became of it
};

class Endpoint {
 public:
  static constexpr Nanos kStretch = 100 * kMicro;  // of one poll

  virtual ~Endpoint() = default;  // closes; see contract rule 1

  virtual Bytes address() const = 0;  // flat bytes a peer of the same provider can add_peer
  virtual Result<Peer> add_peer(Bytes address) = 0;
  // Forgets the peer and drops what connection there is to it, as far as the provider can.
  virtual void remove_peer(Peer peer) = 0;

  virtual Post read(Op& op, Peer peer, void* to, size_t len, RemoteKey from, uint64_t offset) = 0;
  // Done means delivered: the bytes are in the target's memory. `from` must stay unchanged till
  // then.
  virtual Post write(Op& op, Peer peer, const void* from, size_t len, RemoteKey to,
                     uint64_t offset) = 0;
  // Only where traits().cas. *result gets the value found. All words in local memory.
  virtual Post cas(Op& op, Peer peer, uint64_t* result, const uint64_t* expected,
                   const uint64_t* desired, RemoteKey at, uint64_t offset) = 0;
  // len <= traits().max_message. The buffer is free again when the op is done.
  virtual Post send(Op& op, Peer peer, const void* message, size_t len) = 0;
  // The same for a short message, which is copied. Its end, good or bad, is not reported.
  // False: nothing was sent; it is too long for that, or cannot go at once.
  virtual bool inject(Peer peer, const void* message, size_t len) = 0;

  // Moves everything forward and hands out completions and messages; returns how many. Many threads
  // may call it; where another thread is at it already, it returns 0 at once.
  virtual int poll() = 0;
  // It was opened beside another one and shares its queue: poll() of either hands out what has come
  // for both, so one of the two need be polled.
  virtual bool shares_queue() const { return false; }
  // A descriptor that polls readable when poll() has something to do, or -1. Only to be trusted
  // between may_sleep() == true and the next poll().
  virtual int wait_fd() const = 0;
  virtual bool may_sleep() = 0;
  // Ends connections to this endpoint whose other side has sent nothing for a while, or has gone,
  // and that the provider has not ended itself. To be called every few seconds.
  virtual void end_strangers() {}
  // A connection that was in use went away (operations may still be found in flight).
  virtual bool broken() const = 0;
  // Broken by a fault of this side (its provider, its queue): the peer has nothing to do with it.
  virtual bool faulty() const { return false; }

  // Waits till the op is done: polls for a short while, then sleeps on the descriptor, always
  // checking the deadline. kTimeout leaves the op in flight; it may come early where the other way
  // has ended. Any number of threads at once. kOther: the op will end by the other way, if there is
  // one, and this one is looked at now and then.
  enum class Way : uint8_t { kThis, kOther };
  Cause wait(Op& op, Deadline deadline, Way way = Way::kThis);
  // From now on; it must stay until the endpoint is destroyed.
  void go_also(OtherWay& other) {
    other_.store(&other, std::memory_order_seq_cst);
    wake_sleeper();
  }
  OtherWay* other_way() const { return other_.load(std::memory_order_acquire); }  // null: none
  // poll(), and a look at the other way.
  int poll_both();
  bool awaited() const { return waiting_.load(std::memory_order_relaxed) != 0; }  // a thread waits

 protected:
  Endpoint();
  // For poll(), after it handed out anything: the sleeper's operation may be among it, and the
  // descriptor has nothing left to wake it with.
  void wake_sleeper();

 private:
  void sleep_on_descriptor(const Op& op, Nanos span);
  void learn_from(Nanos took, Nanos polled_trip, bool slept);
  int look_other();
  int poll_by(Way way, unsigned round);

  std::atomic<OtherWay*> other_{nullptr};
  std::atomic<int> waiting_{0};  // threads in wait()
  std::atomic<Nanos> span_;      // how long the next one looks before it sleeps
  std::atomic<int> turns_{0};    // not 0: it lasted long lately
  std::atomic<bool> sleeping_{
      false};  // one waiter sleeps on the descriptor, the others on their op
  Fd waker_;   // an eventfd beside the descriptor, for wake_sleeper
};

// Memory that peers may reach with a key. Closed by its destructor: once that has returned the key
// opens nothing any more (an operation in mid-payload excepted: see Endpoint and the fences).
class Region {
 public:
  virtual ~Region() = default;
  virtual RemoteKey key() const = 0;
  // Where the provider's keys do not fit 64 bits: the key itself, at most kMaxRawKey bytes, which
  // an initiator gives to Fabric::map_key. Else empty.
  virtual Bytes raw_key() const { return {}; }
};
inline constexpr size_t kMaxRawKey = 64;

struct Traits {
  std::string provider;  // as CMI_PROVIDER would name it, e.g. "net" or "tcp;ofi_rxm"
  std::string device;    // what carries it, as the system names it, e.g. "eth0"; empty: not known
  bool cas = false;      // remote compare-and-swap works and is coherent with CPU atomics
  bool wait_fd = false;  // endpoints have a descriptor to sleep on
  bool ordered_after_write = false;  // a message is never seen before writes posted earlier
  bool cheap_regions = true;         // registering costs microseconds and pins nothing
  size_t max_message = 0;            // bytes of one send
  size_t max_rma = 0;                // bytes of one read or write
};

class Fabric {
 public:
  virtual ~Fabric() = default;  // after all of its Endpoints and Regions
  virtual const Traits& traits() const = 0;
  // `beside`: one of this fabric that the same thread looks after. Where that makes looking cheaper
  // the new one shares its queue.
  virtual Result<std::unique_ptr<Endpoint>> open_endpoint(Receiver& receiver,
                                                          Endpoint* beside = nullptr) = 0;
  // `wanted_key` is honoured where the provider lets us choose; ask Region::key().
  // `through`: the endpoint of this fabric that peers will go to with the key. Where the provider
  // binds regions to endpoints the key opens nothing at another one, nor here once that is closed,
  // and there is none without (kInval). Elsewhere it opens its memory at each endpoint.
  // kNoMem where a key is taken or limits are hit.
  virtual Result<std::unique_ptr<Region>> register_memory(void* addr, size_t len, uint32_t rights,
                                                          uint64_t wanted_key,
                                                          Endpoint* through = nullptr) = 0;
  // What operations toward a region are to be given, from what its home sent about it: key() and
  // raw_key(). kInval: no such key can be.
  virtual Result<RemoteKey> map_key(RemoteKey told, Bytes raw) {
    if (!raw.empty()) return Status::kInval;
    return told;
  }
};

struct Config {
  std::string provider;                 // empty: the best that works here
  std::string address;                  // local address or interface name; empty: loopback; "auto"
  std::vector<std::string> tried = {};  // opened by this process and found good: not tried again
  bool may_fail = false;                // one of several: a failure is traced, and is no error
};

// Opens the provider asked for, or the best one, and tries what it can really do. kNotSupp with a
// trace line that says why when none works or the one asked for cannot keep the contract; kInval
// for an address that is none of this machine's.
Result<std::unique_ptr<Fabric>> open_fabric(const Config& config);

// The process ends by exit(), and other threads may go on: they keep their signal handlers while
// the libraries below end.
void process_ends();

// Where somebody may be reached. Wire data, but for its lengths.
struct ListenerAddress {
  std::string provider;
  std::vector<std::byte> blob;  // Endpoint::address()
  bool operator==(const ListenerAddress&) const = default;
};

// The largest message that every implementation takes and every Endpoint has buffers for.
inline constexpr size_t kMaxMessage = 32 * 1024;
// What fits into one request, reply or notification.
inline constexpr size_t kMaxPayload = kMaxMessage - 128;

}  // namespace cmi::fabric
