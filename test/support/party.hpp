// What tests of links and servers are made of: a Party is one context at the level of the fabric (a
// server that answers, polled by a thread of its own, and links to other parties); a Stranger
// speaks the wire by hand, so that it can say what no Link would. Threads: a Party's handler runs
// on its poller and, where a test polls too, on that; the rest belongs to the test.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/ids.hpp"
#include "fabric/fabric.hpp"
#include "fabric/frame.hpp"
#include "fabric/link.hpp"
#include "fabric/server.hpp"
#include "support/slow.hpp"

namespace cmi::test {

inline const Nanos kLong = slowness() * 20 * kSecond;  // for what must happen
inline constexpr Nanos kShort = 200 * kMilli;          // for what must not

using Buffer = std::vector<std::byte>;

template <class F>
bool comes_true(F happened, Nanos patience = kLong) {
  const Deadline deadline = Deadline::in(patience);
  while (!happened()) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

inline Buffer buffer(uint64_t word) {
  Buffer b(sizeof word);
  std::memcpy(b.data(), &word, sizeof word);
  return b;
}
inline uint64_t word(Bytes b) {
  uint64_t w = 0;
  if (b.size() == sizeof w) std::memcpy(&w, b.data(), sizeof w);
  return w;
}

struct Told {  // a notification or an ack that arrived
  ContextId from;
  uint64_t secret, number;
  uint16_t type;
  Buffer payload;
};

class RecordingHandler final : public fabric::ServerHandler {
 public:
  std::atomic<bool> welcoming{true};
  std::atomic<bool> holding{false};  // answers wait for release()
  std::atomic<bool> sweepable{true};
  std::atomic<fabric::TokensSent> tokens{fabric::TokensSent::kNo};  // what release() says
  std::atomic<int> sessions{0}, executions{0};
  std::function<void(const ContextId&)> during_request;  // set before there are any
  ContextId keeps;                                       // the same; not sweepable
  fabric::Server* server = nullptr;

  // Answers are the payload plus one, so that no answer equals its question.
  static Buffer answer_to(Bytes question) { return buffer(word(question) + 1); }

  bool on_hello(const fabric::ClientInfo&) override { return welcoming.load(); }
  void on_new_session(const fabric::ClientInfo&) override { sessions.fetch_add(1); }
  void on_request(const fabric::ClientInfo& client, uint64_t number, uint16_t,
                  Reader payload) override {
    const Bytes question = payload.rest();
    const Buffer answer = answer_to(question);
    if (during_request) during_request(client.id);
    {
      std::lock_guard g(mu_);
      last_question_.assign(question.begin(), question.end());
      ++executed_[{client.id, number}];
      if (holding.load()) {
        held_.push_back({client.id, 0, number, 0, answer});
        executions.fetch_add(1);
        return;
      }
    }
    executions.fetch_add(1);
    server->reply(client.id, number, answer);
  }
  void on_notification(const ContextId& home, uint64_t secret, uint64_t number, uint16_t type,
                       Reader payload, const fabric::DirectAck& direct_ack) override {
    const Bytes b = payload.rest();
    std::lock_guard g(mu_);
    notifications_.push_back({home, secret, number, type, Buffer(b.begin(), b.end())});
    direct_acks_.push_back(
        {direct_ack.number, direct_ack.token, Buffer(direct_ack.to.begin(), direct_ack.to.end())});
  }
  void on_acked_below(const ContextId& client, uint64_t below,
                      std::span<const uint64_t> behind) override {
    std::lock_guard g(mu_);
    acked_below_.push_back({client, 0, below, 0, {}});
    behind_.insert(behind_.end(), behind.begin(), behind.end());
  }
  bool may_sweep(const ContextId& client) override { return sweepable.load() && client != keeps; }
  void on_ack(const ContextId& client, uint64_t number, Reader) override {
    std::lock_guard g(mu_);
    acks_.push_back({client, 0, number, 0, {}});
  }

  void release() {
    holding.store(false);
    std::vector<Told> held;
    {
      std::lock_guard g(mu_);
      held.swap(held_);
    }
    for (auto& h : held) server->reply(h.from, h.number, h.payload, tokens.load());
  }
  int executed(const ContextId& client, uint64_t number) {
    std::lock_guard g(mu_);
    auto it = executed_.find({client, number});
    return it == executed_.end() ? 0 : it->second;
  }
  size_t numbers() {  // different ones
    std::lock_guard g(mu_);
    return executed_.size();
  }
  int most_often() {
    std::lock_guard g(mu_);
    int most = 0;
    for (auto& [key, n] : executed_) most = std::max(most, n);
    return most;
  }
  std::vector<Told> notifications() {
    std::lock_guard g(mu_);
    return notifications_;
  }
  // What the notifications asked for; Server::give takes a view of one.
  struct Wanted {
    uint64_t number, token;
    Buffer to;
    fabric::DirectAck direct_ack() const { return {number, token, to}; }
  };
  std::vector<Wanted> direct_acks() {
    std::lock_guard g(mu_);
    return direct_acks_;
  }
  Buffer last_question() {
    std::lock_guard g(mu_);
    return last_question_;
  }
  std::vector<uint64_t> acked_behind() {
    std::lock_guard g(mu_);
    return behind_;
  }
  std::vector<Told> acked_below() {
    std::lock_guard g(mu_);
    return acked_below_;
  }
  std::vector<Told> acks() {
    std::lock_guard g(mu_);
    return acks_;
  }

 private:
  std::mutex mu_;
  std::map<std::pair<ContextId, uint64_t>, int> executed_;
  std::vector<Told> held_, notifications_, acks_, acked_below_;
  std::vector<Wanted> direct_acks_;
  Buffer last_question_;
  std::vector<uint64_t> behind_;
};

class Party {
 public:
  explicit Party(std::unique_ptr<fabric::Fabric> f) : fabric(std::move(f)) {
    REQUIRE(fabric != nullptr);
    auto s = fabric::Server::open(*fabric, id, handler);
    REQUIRE(s);
    server = s.take();
    handler.server = server.get();
    poller_ = std::thread([this] {
      while (!stop_.load(std::memory_order_relaxed)) {
        if (server->poll() == 0) std::this_thread::yield();
      }
    });
  }
  ~Party() { stop_polling(); }
  Party(const Party&) = delete;
  Party& operator=(const Party&) = delete;

  Buffer listener() const {
    const Bytes a = server->listener_address();
    return {a.begin(), a.end()};
  }
  fabric::Identity identity() const { return {id, node, notification_secret, listener()}; }
  std::unique_ptr<fabric::Link> link_to(const Party& home) {
    return std::make_unique<fabric::Link>(*fabric, identity(), home.id, home.listener());
  }

  // For who polls the server by himself.
  void stop_polling() {
    stop_.store(true);
    if (poller_.joinable()) poller_.join();
  }

  const ContextId id = random_context_id();
  const NodeId node{random_u64(), random_u64()};
  const uint64_t notification_secret = random_u64();  // told to each home
  std::unique_ptr<fabric::Fabric> fabric;
  RecordingHandler handler;
  std::unique_ptr<fabric::Server> server;

 private:
  std::atomic<bool> stop_{false};
  std::thread poller_;
};

// One call that must succeed with the right answer.
inline bool call_works(fabric::Link& link, uint64_t question, Nanos patience = kLong) {
  auto r = link.call(7, buffer(question), Deadline::in(patience));
  return r && word(*r) == question + 1;
}

class Stranger final : public fabric::Receiver {
 public:
  struct Hello {  // what a hello says; the defaults are in order
    ContextId id;
    NodeId node{1, 2};
    ContextId meant;
    uint64_t notification_secret = 0x5ec;
    uint32_t generation = 1;
    Buffer initiator, listener;
  };
  struct Welcome {
    uint64_t secret = 0;
    uint32_t generation = 0;
    Buffer serving;
  };

  Stranger(fabric::Fabric& f, const Party& to) : meant_(to.id) {
    auto ep = f.open_endpoint(*this);
    REQUIRE(ep);
    endpoint_ = ep.take();
    listener_ = peer(to.listener());
  }

  fabric::Endpoint& endpoint() { return *endpoint_; }
  Buffer address() const {
    const Bytes a = endpoint_->address();
    return {a.begin(), a.end()};
  }
  fabric::Peer peer(Bytes at) {
    auto p = endpoint_->add_peer(at);
    REQUIRE(p);
    return *p;
  }
  fabric::Peer listener() const { return listener_; }

  Hello hello() const { return {id, {1, 2}, meant_, 0x5ec, 1, address(), address()}; }
  static Buffer encode(const Hello& h) {
    Buffer b(1024);
    Writer out(b);
    for (uint64_t w : {h.id.hi, h.id.lo, h.node.hi, h.node.lo, h.meant.hi, h.meant.lo}) out.put(w);
    out.put(h.notification_secret);
    out.put(h.generation);
    out.put<uint64_t>(0x0ce);  // the nonce
    out.blob(h.initiator);
    out.blob(h.listener);
    REQUIRE(out.ok());
    b.resize(out.size());
    return b;
  }
  bool say(const Hello& h) {
    return send(listener_, {fabric::FrameKind::kHello, 0, 0, 0, 0, encode(h)});
  }
  // Says hello and waits for the welcome of that generation.
  Welcome enter(uint32_t generation = 1) {
    Hello h = hello();
    h.generation = generation;
    return enter(h);
  }
  Welcome enter(const Hello& h) {
    REQUIRE(say(h));
    Welcome w;
    REQUIRE(comes_true([&] {
      endpoint_->poll();
      std::lock_guard g(mu_);
      for (auto& [f, payload] : frames_) {
        if (f.kind != fabric::FrameKind::kWelcome) continue;
        Reader in(payload);
        w.generation = in.get<uint32_t>();
        REQUIRE(in.get<uint64_t>() == 0x0ce);
        const Bytes at = in.blob();
        w.serving.assign(at.begin(), at.end());
        w.secret = f.secret;
        if (w.generation == h.generation) return true;
      }
      return false;
    }));
    return w;
  }

  // True when it was taken and delivered.
  bool send(fabric::Peer to, const fabric::Frame& f, Nanos patience = kLong) {
    Buffer b(fabric::frame_size(f));
    Writer out(b);
    fabric::encode_frame(f, out);
    return send(to, b, patience);
  }
  bool send(fabric::Peer to, Buffer bytes, Nanos patience = kLong) {
    buffers_.push_back(std::make_unique<SendBuffer>());
    SendBuffer& l = *buffers_.back();
    l.bytes = std::move(bytes);
    const Deadline deadline = Deadline::in(patience);
    for (;;) {
      const auto p = endpoint_->send(l.op, to, l.bytes.data(), l.bytes.size());
      if (p == fabric::Post::kPosted) break;
      if (p == fabric::Post::kFailed || deadline.passed()) return false;
      endpoint_->poll();
    }
    return endpoint_->wait(l.op, deadline) == fabric::Cause::kOk;
  }
  bool request(fabric::Peer serving, uint64_t secret, uint64_t number, uint64_t acked_below,
               Nanos patience = kLong) {
    return send(serving,
                {fabric::FrameKind::kRequest, 7, secret, number, acked_below, buffer(number * 10)},
                patience);
  }
  int replies(uint64_t number) {
    endpoint_->poll();
    std::lock_guard g(mu_);
    int n = 0;
    for (auto& [f, payload] : frames_) {
      n += f.kind == fabric::FrameKind::kReply && f.number == number &&
           word(payload) == number * 10 + 1;
    }
    return n;
  }

  int notifications() {
    endpoint_->poll();
    std::lock_guard g(mu_);
    return static_cast<int>(std::count_if(frames_.begin(), frames_.end(), [](auto& f) {
      return f.first.kind == fabric::FrameKind::kNotification;
    }));
  }

  void on_message(fabric::Endpoint&, Bytes message) override {
    fabric::Frame f;
    if (!fabric::decode_frame(message, &f)) return;
    std::lock_guard g(mu_);
    frames_.emplace_back(f, Buffer(f.payload.begin(), f.payload.end()));
  }

  const ContextId id = random_context_id();

 private:
  struct SendBuffer {
    fabric::Op op;
    Buffer bytes;
  };
  const ContextId meant_;
  std::mutex mu_;
  std::vector<std::pair<fabric::Frame, Buffer>> frames_;
  std::vector<std::unique_ptr<SendBuffer>> buffers_;  // before the endpoint: they outlive it
  std::unique_ptr<fabric::Endpoint> endpoint_;
  fabric::Peer listener_{};
};

}  // namespace cmi::test
