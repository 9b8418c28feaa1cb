// One event while it waits: facts in the library's own terms. The client's object is made of it
// when the client takes it, in one block of the client's memory.
// Pure; guarded by the lock of the queue that holds it.
#pragma once

#include <cmi.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/access/handles.hpp"

namespace cmi::events {

// The rest of an event's block, handed out in pieces. As large as the pieces asked for in room().
class Block {
 public:
  explicit Block(std::byte* at) : at_(at) {}
  template <class T>
  static constexpr size_t room(size_t n) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): the pieces may be pointers
    return (n * sizeof(T) + kAlign - 1) / kAlign * kAlign;
  }
  template <class T>
  T* take(size_t n) {
    auto* piece = reinterpret_cast<T*>(at_);
    at_ += room<T>(n);
    return piece;
  }
  cmi_naddr* put(const access::NaddrInfo& address, uint16_t version);
  static constexpr size_t kAddressRoom = access::kNaddrSize;

 private:
  static constexpr size_t kAlign = 8;
  static_assert(kAddressRoom % kAlign == 0);
  std::byte* at_;
};

class Event {
 public:
  // In this order they are taken: causes before effects.
  enum Rank { kHardware, kConnectivity, kOther };
  static constexpr int kRanks = 3;

  explicit Event(cmi_event_type t) : type(t) {}
  virtual ~Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  virtual Rank rank() const { return kOther; }
  // True: this one, which waits already, now says what `newer` says as well.
  virtual bool absorb(Event& newer) = 0;
  // This one and `newer` cancel each other, given that one more of newer's type waits before.
  virtual bool undone_by(const Event&) const { return false; }
  // True: with this segment marked for deletion there is nothing left to tell.
  virtual bool forget(int32_t segment) = 0;
  // Bytes behind the cmi_event; at most, since views may go until it is filled in.
  virtual size_t room() const = 0;
  // The segment whose lowest view fill() needs; 0: none.
  virtual int32_t view_of() const { return 0; }
  virtual void fill(cmi_event* out, Block block, std::byte* lowest_view,
                    uint16_t version) const = 0;

  const cmi_event_type type;
  std::function<void()> returned;  // run when the client gives it back; may be empty
};

}  // namespace cmi::events
