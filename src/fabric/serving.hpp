// Private to the files of Server.
#pragma once

#include <memory>

#include "fabric/server.hpp"

namespace cmi::fabric {

// The endpoint that serves one client in one generation. Held by the client's entry and, for the
// length of a poll, by pollers.
struct Server::Serving : Receiver {
  Serving(Server& s, ContextId c) : server(s), client(c) {}
  ~Serving() override { port.reset(); }
  void on_message(Endpoint&, Bytes message) override {
    Frame f;
    if (!decode_frame(message, &f)) return server.drop();
    if (f.kind == FrameKind::kRequest) return server.request(*this, f);
    if (f.kind == FrameKind::kSettled) return server.settled(*this, f);
    server.drop();
  }
  Server& server;
  const ContextId client;
  Peer peer{};  // the client's initiating endpoint
  std::unique_ptr<Port> port;
};

}  // namespace cmi::fabric
