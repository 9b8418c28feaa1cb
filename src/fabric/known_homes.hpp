// The homes whose notifications a Server takes, and where its acknowledgements go.
// Invariant: each home that is listed has been added to the address book of one listener, once.
// Threads: any.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>

#include "core/base/ids.hpp"
#include "core/base/lock.hpp"
#include "fabric/listener_ports.hpp"
#include "fabric/lock_order.hpp"
#include "fabric/ring/channel.hpp"

namespace cmi::fabric {

// What takes the frames that come by rings of homes.
class HomeSink {
 public:
  virtual ~HomeSink() = default;
  virtual void on_home_frame(const ContextId& home, const Frame& f) = 0;
  virtual void on_no_frame() = 0;  // a message that is no frame
};

// By which a home of this machine notifies us, and hears our acknowledgements.
class HomeRing final : private ring::ChannelSink {
 public:
  HomeRing(HomeSink& sink, ContextId home, std::unique_ptr<ring::Channel> channel)
      : sink_(sink), home_(home), channel_(std::move(channel)) {}
  int poll() { return channel_->pump() + channel_->poll(*this); }
  ring::Channel& channel() { return *channel_; }

 private:
  void on_ring_message(ring::Channel&, Bytes message) override {
    Frame f;
    if (!decode_frame(message, &f)) return sink_.on_no_frame();
    sink_.on_home_frame(home_, f);
  }

  HomeSink& sink_;
  const ContextId home_;
  const std::unique_ptr<ring::Channel> channel_;
};

class KnownHomes {
 public:
  explicit KnownHomes(ListenerPorts& ports) : ports_(ports) {}

  // `address`: where the home listens; our listener `index` reaches it. `secret`: what the home's
  // notifications must carry. For a home that is listed already: its new address and secret.
  Status add(const ContextId& home, Bytes address, uint64_t secret, size_t index);
  // Whether a notification with this secret is from this home.
  bool vouches_for(const ContextId& home, uint64_t secret);
  // Our listener that reaches the home.
  std::optional<size_t> listener_of(const ContextId& home);
  // The home, which is listed, is of this machine: until it is added again, or the ring ends.
  void take_ring(const ContextId& home, std::shared_ptr<HomeRing> ring);
  size_t ring_count() const { return ring_count_.load(std::memory_order_relaxed); }
  std::shared_ptr<HomeRing> ring_at(size_t i);  // null: there are fewer
  template <class F>
  void each_ring(F f) {
    if (ring_count() == 0) return;
    Guard g(mu_);
    for (const auto& [home, h] : homes_) {
      if (h.ring != nullptr) f(h.ring->channel());
    }
  }
  // To the home, if it is listed.
  void send(const ContextId& home, const Frame& frame);

 private:
  struct Home {
    size_t index = 0;
    Peer peer{};
    uint64_t secret = 0;
    std::shared_ptr<HomeRing> ring;
  };
  void count_rings() CMI_REQUIRES(mu_);
  ListenerPorts& ports_;
  Mutex mu_ CMI_ACQUIRED_AFTER(lock_order::after_sessions)
      CMI_ACQUIRED_BEFORE(lock_order::after_tables);
  std::map<ContextId, Home> homes_ CMI_GUARDED_BY(mu_);
  std::atomic<size_t> ring_count_{0};
};

}  // namespace cmi::fabric
