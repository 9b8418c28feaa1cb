// A server that nothing comes to, and a watch over no peers: for parts of a home and of an importer
// that are tested alone.
#pragma once

#include "core/liveness/peer_watch.hpp"
#include "fabric/server_handler.hpp"

namespace cmi::test {

class Deaf final : public fabric::ServerHandler {
 public:
  bool on_hello(const fabric::ClientInfo&) override { return true; }
  void on_new_session(const fabric::ClientInfo&) override {}
  void on_request(const fabric::ClientInfo&, uint64_t, uint16_t, Reader) override {}
  void on_notification(const ContextId&, uint64_t, uint64_t, uint16_t, Reader,
                       const fabric::DirectAck&) override {}
  void on_acked_below(const ContextId&, uint64_t, std::span<const uint64_t>) override {}
  void on_ack(const ContextId&, uint64_t, Reader) override {}
  bool may_sweep(const ContextId&) override { return false; }
};

class NoWatch final : public liveness::PeerWatch {
 public:
  uint16_t port() const override { return 0; }
  uint64_t expect(const ContextId&) override { return 0; }
  bool watch_home(const access::RsegInfo&, const fabric::Link&, uint16_t, uint64_t,
                  Deadline) override {
    return false;
  }
  void unwatch_home(const ContextId&) override {}
  Nanos dead_after() const override { return 10 * kSecond; }
  void look() override {}
  void suspect(const ContextId&) override {}
};

}  // namespace cmi::test
