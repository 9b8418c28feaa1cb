// How long an access waits for a home that does not answer. Any thread; no lock.
#pragma once

#include <atomic>

#include "core/base/clock.hpp"
#include "core/liveness/peer_watch.hpp"

namespace cmi::memory {

class ReconfTimeout {
 public:
  explicit ReconfTimeout(liveness::PeerWatch& watch) : watch_(watch) {}
  // The client's, from now on. Until there is one, the time of death is taken, and a home that
  // gives signs of life is waited for beyond it.
  void set(Nanos t) { set_.store(t, std::memory_order_relaxed); }
  bool is_set() const { return set_.load(std::memory_order_relaxed) != 0; }
  Nanos get() const {
    const Nanos set = set_.load(std::memory_order_relaxed);
    return set != 0 ? set : watch_.dead_after();
  }

 private:
  liveness::PeerWatch& watch_;
  std::atomic<Nanos> set_{0};  // 0: the client has set none
};

}  // namespace cmi::memory
