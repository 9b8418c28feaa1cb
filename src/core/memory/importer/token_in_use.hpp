// The token of an import: which it is, and where it was presented.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/access/handles.hpp"
#include "core/base/lock.hpp"
#include "core/memory/importer/lock_order.hpp"

namespace cmi::memory {

struct TokenInUse {
  // Held over a request to the home: never taken by the service thread.
  Mutex mu CMI_ACQUIRED_AFTER(lock_order::after_adoption)
      CMI_ACQUIRED_BEFORE(lock_order::after_requests);
  access::TokenInfo info CMI_GUARDED_BY(mu);
  // Outside mu; application threads only.
  Mutex adopt_mu CMI_ACQUIRED_BEFORE(lock_order::after_adoption);

  // Whether a token was presented in the session of this generation, never 0. If so its key has to
  // be idle before another is presented: the home closes it.
  bool presented_in(uint32_t generation) const CMI_REQUIRES(mu) { return presented_ == generation; }
  void present_in(uint32_t generation) CMI_REQUIRES(mu) { presented_ = generation; }

  // Id of the token that the home has last taken; 0: none. What the home refuses, it refuses to
  // that one.
  uint64_t taken() const { return taken_.load(std::memory_order_acquire); }
  void set_taken(uint64_t id) { taken_.store(id, std::memory_order_release); }

  // Of the token in the registry that this process took over last; see Tokens::adopt(). A version
  // is never 0.
  bool has_adopted(uint64_t version) const CMI_REQUIRES(adopt_mu) {
    return adopted_version_ == version;
  }
  void set_adopted(uint64_t version) CMI_REQUIRES(adopt_mu) { adopted_version_ = version; }

 private:
  uint32_t presented_ CMI_GUARDED_BY(mu) = 0;
  std::atomic<uint64_t> taken_{0};
  uint64_t adopted_version_ CMI_GUARDED_BY(adopt_mu) = 0;
};

}  // namespace cmi::memory
