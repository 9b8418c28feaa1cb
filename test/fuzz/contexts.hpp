// The engine's parts of one context inside the test program, over the fake fabric, for tests that
// hand them messages or keep messages from them. No threads of its own.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/clock.hpp"
#include "core/memory/home/home.hpp"
#include "core/memory/importer/importer.hpp"
#include "core/memory/membership/membership.hpp"
#include "fabric/fake/fake.hpp"
#include "support/long_run.hpp"

namespace cmi::test {

using namespace cmi::memory;

// Whom nothing that is told matters to.
class Unconcerned final : public Observer {
 public:
  void importer_down(const access::NaddrInfo&, std::vector<int32_t>) override {}
  void home_down(const access::NaddrInfo&, std::vector<int32_t>) override {}
  void stores_lost(int32_t, std::vector<uint32_t>, bool) override {}
  void unreachable(const access::NaddrInfo&) override {}
  void quiesced(int32_t, std::function<void()>) override {}
  void resumed(int32_t) override {}
};

// One context without its threads: whoever runs the case calls what they would. One node each.
class Context : public fabric::ServerHandler {
 public:
  // `kernel`: as on this version of Linux (Userfault::probe); 0: the oldest.
  Context(fabric::FakeNet& net, const node::Config& config, uint32_t kernel = 0)
      : Context(fabric::LocalInterface{net.open(), net.open(), false}, config, kernel) {}
  Context(fabric::LocalInterface way, const node::Config& config, uint32_t kernel = 0) {
    interfaces_.push_back(std::move(way));
    auto joined = node::Node::join(config, id);
    REQUIRE(joined);
    node_ = joined.take();
    Userfault::probe(kernel);
    auto opened = fabric::Server::open({interfaces_[0].serving.get()}, id, *this);
    REQUIRE(opened);
    server = opened.take();
    const fabric::Identity identity{id, node_->id(), 0, {}};
    auto watches = Membership::open({*node_, *server, id, kSecond, observer_});
    REQUIRE(watches);
    watch_ = watches.take();
    auto imports = Importer::open(
        {*node_, interfaces_, *server, identity, views_, stats_, *watch_, false, observer_});
    REQUIRE(imports);
    importer = imports.take();
    auto homes = Home::open({*node_, *server, id, node_->id(), views_, stats_, *watch_, observer_});
    REQUIRE(homes);
    home = homes.take();
    watch_->start(*home, *importer);
  }
  ~Context() override {
    importer.reset();
    watch_.reset();
    server.reset();
    home.reset();
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  bool on_hello(const fabric::ClientInfo&) override { return true; }
  void on_new_session(const fabric::ClientInfo& client) override { home->on_new_session(client); }
  void on_request(const fabric::ClientInfo& client, uint64_t number, uint16_t type,
                  Reader payload) override {
    home->on_request(client, number, type, payload);
  }
  void on_notification(const ContextId& from, uint64_t secret, uint64_t number, uint16_t type,
                       Reader payload, const fabric::DirectAck& direct_ack) override {
    importer->notifications().on_notification(from, secret, number, type, payload, direct_ack);
  }
  void on_acked_below(const ContextId& client, uint64_t below,
                      std::span<const uint64_t> behind) override {
    home->on_acked_below(client, below, behind);
  }
  void on_ack(const ContextId& client, uint64_t number, Reader payload) override {
    home->on_ack(client, number, payload);
  }
  bool may_sweep(const ContextId&) override { return false; }

  ViewTable& views() { return views_; }
  const Stats& stats() const { return stats_; }

  const ContextId id = random_context_id();
  std::unique_ptr<fabric::Server> server;
  std::unique_ptr<Importer> importer;
  std::unique_ptr<Home> home;

 private:
  Unconcerned observer_;
  std::unique_ptr<Membership> watch_;
  std::vector<fabric::LocalInterface> interfaces_;
  std::unique_ptr<node::Node> node_;
  ViewTable views_;
  Stats stats_{};
};

// What the service threads of both would do, until it ends.
inline std::jthread service_threads_of(Context& home, Context& peer) {
  return std::jthread([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      home.server->poll();
      home.home->tick(now());
      peer.server->poll();
      peer.importer->advance();
      std::this_thread::yield();
    }
  });
}

// A variable that sets how long or from which seed a test of random input runs.
inline uint64_t number_from(const char* variable, uint64_t usual) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 0) : usual;
}

// How many random inputs a test plays: a quarter of them where the run is not the long one.
inline uint64_t fuzz_count(uint64_t all) {
  return number_from("CMI_FUZZ_COUNT", long_run() ? all : all / 4);
}

}  // namespace cmi::test
