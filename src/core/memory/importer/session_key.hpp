// The session key of one import: what its one-sided reads and writes carry, and which of them are
// under way. Any thread; no lock.
//
// Invariant: once close() has been called, or what begin_use() asks for is refused, no operation
// begins with the key; those that began before are counted until they end. A revocation and a new
// break first change what begin_use() looks at, and then wait until in_use() is false.
#pragma once

#include <atomic>
#include <cstdint>

#include "fabric/link.hpp"

namespace cmi::memory {

class SessionKey {
 public:
  // The generation of the link that the key is valid in; 0: the key is closed.
  uint32_t generation() const { return generation_.load(std::memory_order_acquire); }
  fabric::RemoteKey key() const {
    return {key_.load(std::memory_order_relaxed), base_.load(std::memory_order_relaxed)};
  }
  // A key that the home has granted. Nobody uses it before open().
  void set(const fabric::RemoteKey& key) {
    key_.store(key.key, std::memory_order_relaxed);
    base_.store(key.base, std::memory_order_relaxed);
  }
  void open(uint32_t generation) { generation_.store(generation, std::memory_order_seq_cst); }
  void close() { generation_.store(0, std::memory_order_seq_cst); }

  // How many keys the home has been asked for. A new one is only asked for when no operation
  // carries the last.
  uint32_t asked() const { return asked_.load(std::memory_order_seq_cst); }
  void ask() { asked_.fetch_add(1, std::memory_order_seq_cst); }

  // Around an operation with `key` of this generation. False: the key is another one by now, or
  // `allowed` is false; nothing may be done then, and end_use() is not called.
  template <class Allowed>
  bool begin_use(uint32_t generation, const fabric::RemoteKey& key, Allowed allowed) {
    in_use_.fetch_add(1, std::memory_order_seq_cst);
    if (generation_.load(std::memory_order_seq_cst) == generation && holds(key) && allowed()) {
      return true;
    }
    end_use();
    return false;
  }
  void end_use() { in_use_.fetch_sub(1, std::memory_order_seq_cst); }
  bool in_use() const { return in_use_.load(std::memory_order_seq_cst) != 0; }

 private:
  // Both: a key that was read while another one was set may have the number of one and the base of
  // the other, and that one may be open in the same generation by now. The acquire of the
  // generation shows both as they were before it was opened.
  bool holds(const fabric::RemoteKey& key) const {
    return key_.load(std::memory_order_relaxed) == key.key &&
           base_.load(std::memory_order_relaxed) == key.base;
  }

  std::atomic<uint32_t> generation_{0};
  std::atomic<uint64_t> key_{0}, base_{0};
  std::atomic<int> in_use_{0};
  std::atomic<uint32_t> asked_{0};
};

}  // namespace cmi::memory
