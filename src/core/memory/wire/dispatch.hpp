// From the type of a message to the struct that it is decoded into and the function that takes it.
// A handler is only called with a message that was decoded and checked; what no handler is for and
// what is malformed is answered by the caller of dispatch(), in one place.
#pragma once

#include <array>
#include <functional>

#include "core/memory/wire/message.hpp"

namespace cmi::memory {

enum class Dispatched : uint8_t { kHandled, kUnknown, kMalformed };

// Of messages that have one type. `handler`: a member function of the target, or a function whose
// first argument is the target.
template <class Message, auto handler, class Target, class... Origin>
Dispatched dispatch_as(Reader in, Target& target, const Origin&... origin) {
  Message message;
  if (!decode(in, &message)) return Dispatched::kMalformed;
  std::invoke(handler, target, origin..., message);
  return Dispatched::kHandled;
}

// Types below kTypes. Target: the handlers' object; Origin: what they get beside the message.
template <size_t kTypes, class Target, class... Origin>
class DispatchTable {
 public:
  // `handler`: as of dispatch_as().
  template <class Message, auto handler, class Type>
  constexpr DispatchTable& on(Type type) {
    takers_[static_cast<size_t>(type)] = [](Target& target, Origin... origin, Reader in) {
      return dispatch_as<Message, handler>(in, target, origin...);
    };
    return *this;
  }
  Dispatched dispatch(size_t type, Target& target, Origin... origin, Reader in) const {
    if (type >= kTypes || takers_[type] == nullptr) return Dispatched::kUnknown;
    return takers_[type](target, origin..., in);
  }

 private:
  using Taker = Dispatched (*)(Target&, Origin..., Reader);
  std::array<Taker, kTypes> takers_{};
};

}  // namespace cmi::memory
