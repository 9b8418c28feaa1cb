// Nodes inside this process, and the choice of an implementation. The far nodes are in
// far_node.cpp.
#include "fabric/world.hpp"

#include <poll.h>
#include <rdma/fi_domain.h>

#include "core/base/log.hpp"
#include "fabric/far_node.hpp"
#include "support/skip.hpp"

// libfabric 1.17 loses an fi_info with each endpoint of net and some bytes with shm.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libfabric.so\n"; }

namespace cmi::test {

Poller::Poller(Endpoint& ep)
    : thread_([this, &ep] {
        while (!stop_.load(std::memory_order_relaxed)) {
          if (ep.poll() > 0) continue;
          if (ep.wait_fd() >= 0 && ep.may_sleep()) {
            pollfd p{ep.wait_fd(), POLLIN, 0};
            ::poll(&p, 1, 1);
          } else {
            std::this_thread::yield();
          }
        }
      }) {}

Poller::~Poller() {
  stop_.store(true);
  thread_.join();
}

Server::Server(Fabric& fabric, size_t bytes, uint32_t rights) {
  void* m = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(m != MAP_FAILED);
  memory = Mapping(m, bytes);
  auto ep = fabric.open_endpoint(inbox);
  REQUIRE(ep);
  endpoint = ep.take();
  auto r = fabric.register_memory(m, bytes, rights, random_u64(), endpoint.get());
  REQUIRE(r);
  region = r.take();
  poller = std::make_unique<Poller>(*endpoint);
}

Server::~Server() {
  poller.reset();
  endpoint.reset();
}

Client::Client(Fabric& fabric, Bytes peer_address) {
  auto ep = fabric.open_endpoint(inbox);
  REQUIRE(ep);
  endpoint = ep.take();
  auto p = endpoint->add_peer(peer_address);
  REQUIRE(p);
  peer = *p;
}

Cause Client::read(void* to, size_t len, RemoteKey key, uint64_t offset, Nanos patience) {
  return run([&](Op& op) { return endpoint->read(op, peer, to, len, key, offset); }, patience);
}

Cause Client::write(const void* from, size_t len, RemoteKey key, uint64_t offset, Nanos patience) {
  return run([&](Op& op) { return endpoint->write(op, peer, from, len, key, offset); }, patience);
}

Cause Client::cas(uint64_t* found, uint64_t expected, uint64_t desired, RemoteKey key,
                  uint64_t offset, Nanos patience) {
  return run(
      [&](Op& op) { return endpoint->cas(op, peer, found, &expected, &desired, key, offset); },
      patience);
}

Cause Client::send(const void* message, size_t len, Nanos patience) {
  return run([&](Op& op) { return endpoint->send(op, peer, message, len); }, patience);
}

std::string local_address() {
  const char* address = std::getenv("CMI_TEST_ADDRESS");
  return address != nullptr ? address : "";
}

World::World(Kind kind) : kind_(kind) {
  switch (kind) {
    case Kind::kFake:
      net_ = fabric::FakeNet::make({});
      break;
    case Kind::kOddFake: {
      fabric::FakeModes odd;
      odd.cas = false;
      odd.wait_fd = false;
      odd.ordered = false;
      odd.virtual_addresses = true;
      odd.provider_keys = true;
      odd.bound_regions = true;
      odd.breaks_link = false;
      net_ = fabric::FakeNet::make(odd);
      break;
    }
    case Kind::kStrict: {
      fabric::ProviderModes strict;
      strict.mr_mode =
          FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
      strict.name = "tcp";  // with queues that are shared
      strict.key_size = 4;
      strict.inject_size = 64;
      strict.atomics = strict.wait_fd = strict.ordered = false;
      played_ = fabric::FakeProvider::make(strict);
      break;
    }
    case Kind::kSockets:
      provider_ = "sockets";
      break;
    case Kind::kNet:
      provider_ = "net";
      break;
    case Kind::kRxm:
      provider_ = "tcp;ofi_rxm";
      break;
    case Kind::kVerbs:
      provider_ = "verbs;ofi_rxm";
      break;
  }
}

std::unique_ptr<Fabric> World::open() {
  if (net_ != nullptr) return net_->open();
  if (played_ != nullptr) {
    auto f = played_->open();
    return f ? f.take() : nullptr;
  }
  auto f = fabric::open_fabric({provider_, local_address()});
  if (!f && kind_ == Kind::kNet) {
    provider_ = "tcp";  // its later name
    f = fabric::open_fabric({provider_, local_address()});
  }
  if (!f) return nullptr;
  return f.take();
}

std::unique_ptr<FarNode> World::far() {
  if (net_ != nullptr) return fake_far_node(*net_, open());
  if (played_ != nullptr) return fake_far_node(played_->net(), open());
  return process_far_node(provider_);
}

std::unique_ptr<FarNode> World::far_at(uint16_t port) { return process_far_node(provider_, port); }

void run_contract(Kind kind, void (*contract)(World&)) {
  World world(kind);
  if (world.open() == nullptr && kind == Kind::kVerbs) FAIL("there is no verbs device");
  if (world.open() == nullptr) return skip("libfabric on this machine does not open this provider");
  contract(world);
}

}  // namespace cmi::test
