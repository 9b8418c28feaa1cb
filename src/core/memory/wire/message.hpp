// How a message struct becomes bytes and bytes become a struct. A message lists its fields once, in
// the order of the wire; encoding and decoding both follow that list, so they cannot disagree.
//
//   fields(m)   a tuple of references to the integers at the message's beginning
//   body        optional, Bytes: what follows the fields. It points into the message that was
//               decoded, which must outlive the struct. Nothing is copied or allocated.
//   check()     optional: everything that can be said of the values without any state
//   kOpenEnded  optional: bytes behind the fields are ignored. Without it and without a body, a
//               message with bytes behind its fields is malformed.
//
// Pure code; any thread.
#pragma once

#include <array>
#include <tuple>
#include <type_traits>

#include "core/base/codec.hpp"

namespace cmi::memory {

template <class Message>
using FieldsOf = decltype(Message::fields(std::declval<Message&>()));

template <class Tuple>
struct SizeOfFields;
template <class... Field>
struct SizeOfFields<std::tuple<Field...>>
    : std::integral_constant<size_t, (sizeof(std::remove_reference_t<Field>) + ... + size_t{0})> {};

// Bytes of the fields on the wire, without a body.
template <class Message>
inline constexpr size_t kWireSize = SizeOfFields<FieldsOf<Message>>::value;

template <class Message>
concept HasBody = requires(Message m) {
  m.body;
};
template <class Message>
concept HasCheck = requires(const Message m) {
  m.check();
};
template <class Message>
concept OpenEnded = requires {
  Message::kOpenEnded;
};

template <class Message>
inline void encode(const Message& m, Writer& out) {
  std::apply([&](const auto&... field) { (out.put(field), ...); }, Message::fields(m));
  if constexpr (HasBody<Message>) out.bytes(m.body);
}

// False: the bytes are no such message, and *m must not be used.
template <class Message>
[[nodiscard]] inline bool decode(Reader in, Message* m) {
  const auto get = [&](auto& field) { field = in.get<std::remove_reference_t<decltype(field)>>(); };
  std::apply([&](auto&... field) { (get(field), ...); }, Message::fields(*m));
  if constexpr (HasBody<Message>) m->body = in.rest();
  if (!in.ok()) return false;
  if constexpr (!HasBody<Message> && !OpenEnded<Message>) {
    if (in.left() != 0) return false;
  }
  if constexpr (HasCheck<Message>) return m->check();
  return true;
}
template <class Message>
[[nodiscard]] inline bool decode(Bytes in, Message* m) {
  return decode(Reader(in), m);
}

// The bytes of a message without a body, on the stack.
template <class Message>
class Encoded {
 public:
  explicit Encoded(const Message& m) {
    static_assert(!HasBody<Message>);
    Writer out(buf_);
    encode(m, out);
  }
  operator Bytes() const { return buf_; }
  Bytes bytes() const { return buf_; }

 private:
  std::array<std::byte, kWireSize<Message>> buf_;
};

}  // namespace cmi::memory
