// What the contract tests run on: one implementation of the fabric, nodes made from it inside this
// process, and a far node that can be stopped and killed (a process of its own for the providers, a
// fault of the network for the fake).
#pragma once

#include <doctest/doctest.h>
#include <sys/types.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/fd.hpp"
#include "core/base/ids.hpp"
#include "fabric/fabric.hpp"
#include "fabric/fake/fake.hpp"
#include "fabric/fake/provider.hpp"
#include "support/slow.hpp"

namespace cmi::test {

using fabric::Cause;
using fabric::Endpoint;
using fabric::Fabric;
using fabric::Op;
using fabric::Peer;
using fabric::Post;
using fabric::Region;
using fabric::RemoteKey;
using fabric::Traits;

inline const Nanos kPatience = slowness() * 10 * kSecond;  // for what must happen
inline constexpr Nanos kGlance = 300 * kMilli;             // for what must not

// Waits until `happened` says so, polling nothing itself.
template <class F>
bool eventually(F happened, Nanos patience = kPatience) {
  const Deadline deadline = Deadline::in(patience);
  while (!happened()) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

class Inbox : public fabric::Receiver {
 public:
  void on_message(Endpoint&, Bytes message) override {
    std::lock_guard g(mu_);
    messages_.emplace_back(message.begin(), message.end());
    count_.store(messages_.size(), std::memory_order_release);
  }
  size_t count() const { return count_.load(std::memory_order_acquire); }
  std::vector<std::byte> at(size_t i) {
    std::lock_guard g(mu_);
    return messages_.at(i);
  }

 private:
  std::mutex mu_;
  std::vector<std::vector<std::byte>> messages_;
  std::atomic<size_t> count_{0};
};

// Polls an endpoint until it goes: the service thread of a node.
class Poller {
 public:
  explicit Poller(Endpoint& ep);
  ~Poller();

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// A node that serves memory.
struct Server {
  Server(Fabric& fabric, size_t bytes, uint32_t rights = fabric::kRead | fabric::kWrite);
  ~Server();
  template <class T>
  T* as(size_t offset = 0) {
    return reinterpret_cast<T*>(memory.data() + offset);
  }

  Mapping memory;
  Inbox inbox;
  std::unique_ptr<Region> region;
  std::unique_ptr<Endpoint> endpoint;
  std::unique_ptr<Poller> poller;
};

// A node that starts operations toward one peer.
struct Client {
  Client(Fabric& fabric, Bytes peer_address);

  Cause read(void* to, size_t len, RemoteKey key, uint64_t offset, Nanos patience = kPatience);
  Cause write(const void* from, size_t len, RemoteKey key, uint64_t offset,
              Nanos patience = kPatience);
  Cause cas(uint64_t* found, uint64_t expected, uint64_t desired, RemoteKey key, uint64_t offset,
            Nanos patience = kPatience);
  Cause send(const void* message, size_t len, Nanos patience = kPatience);
  // Posts with patience, waits with patience. An op left in flight is kept until the client goes.
  template <class F>
  Cause run(F post, Nanos patience) {
    const Deadline deadline = Deadline::in(patience);
    ops.push_back(std::make_unique<Op>());
    Op& op = *ops.back();
    for (;;) {
      const Post p = post(op);
      if (p == Post::kPosted) break;
      if (p == Post::kFailed) return Cause::kLocal;
      if (deadline.passed()) return Cause::kTimeout;
      endpoint->poll();
    }
    const Cause c = endpoint->wait(op, deadline);
    if (c != Cause::kTimeout) ops.pop_back();
    return c;
  }

  std::vector<std::unique_ptr<Op>> ops;  // before the endpoint: they outlive it
  Inbox inbox;
  std::unique_ptr<Endpoint> endpoint;
  Peer peer{};
};

// A far node's memory is seen from here whatever state the node is in.
class FarNode {
 public:
  virtual ~FarNode() = default;  // ends and reaps it, in whatever state
  virtual Bytes address() = 0;
  virtual RemoteKey key() = 0;
  virtual std::byte* memory() = 0;
  virtual void stop() = 0;  // as SIGSTOP does; returns when it has stopped
  virtual void resume() = 0;
  virtual void kill() = 0;  // as SIGKILL does
};
inline constexpr size_t kFarBytes = 1 << 20;

// kStrict: a provider, played by the fake, that asks for all that one may ask for.
enum class Kind { kFake, kOddFake, kStrict, kNet, kRxm, kSockets, kVerbs };

class World {
 public:
  explicit World(Kind kind);
  // Null with the reason printed where this machine lacks the provider.
  std::unique_ptr<Fabric> open();
  std::unique_ptr<FarNode> far();
  std::unique_ptr<FarNode> far_at(uint16_t port);  // real ones only
  Kind kind() const { return kind_; }
  bool real() const { return !provider_.empty(); }
  // Reads and writes need no progress at the target: its device does them, while it is stopped too.
  bool one_sided() const { return kind_ == Kind::kVerbs; }

 private:
  Kind kind_;
  std::string provider_;  // of libfabric; empty: one of the fakes
  std::shared_ptr<fabric::FakeNet> net_;
  std::shared_ptr<fabric::FakeProvider> played_;
};

// Runs one contract on one implementation, or skips it.
void run_contract(Kind kind, void (*contract)(World&));

// Where the far end of a real provider is opened, too: CMI_TEST_ADDRESS, else loopback.
std::string local_address();

// verbs needs a device that lo is not. Its cases are there only where CMI_TEST_VERBS says that
// there is one: in the virtual machines of test/verbs.
inline bool without_verbs() { return std::getenv("CMI_TEST_VERBS") == nullptr; }

// Defines the cases "fake: name", "odd_fake: name" and so on, one for each kind.
#define CMI_CONTRACT(name, world)                                                               \
  static void contract_##name(::cmi::test::World&);                                             \
  TEST_CASE("fake: " #name) { run_contract(::cmi::test::Kind::kFake, contract_##name); }        \
  TEST_CASE("odd_fake: " #name) { run_contract(::cmi::test::Kind::kOddFake, contract_##name); } \
  TEST_CASE("strict: " #name) { run_contract(::cmi::test::Kind::kStrict, contract_##name); }    \
  TEST_CASE("net: " #name) { run_contract(::cmi::test::Kind::kNet, contract_##name); }          \
  TEST_CASE("rxm: " #name) { run_contract(::cmi::test::Kind::kRxm, contract_##name); }          \
  TEST_CASE("sockets: " #name) { run_contract(::cmi::test::Kind::kSockets, contract_##name); }  \
  TEST_CASE("verbs: " #name* doctest::skip(::cmi::test::without_verbs())) {                     \
    run_contract(::cmi::test::Kind::kVerbs, contract_##name);                                   \
  }                                                                                             \
  static void contract_##name(::cmi::test::World& world)

inline std::vector<std::byte> pattern(size_t len, uint64_t seed) {
  std::vector<std::byte> v(len);
  uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;
  for (std::byte& b : v) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    b = static_cast<std::byte>(x);
  }
  return v;
}

}  // namespace cmi::test
