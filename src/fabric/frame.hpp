// The frame around every message between contexts. See doc/design/wire.md.
// Pure; any thread.
#pragma once

#include <cstdint>

#include "core/base/codec.hpp"

namespace cmi::fabric {

enum class FrameKind : uint8_t {
  kHello = 1,    // initiator -> door: who I am, where I listen
  kWelcome = 2,  // serving endpoint -> initiator: your session
  kRequest = 3,  // initiator -> serving endpoint; answered by exactly one reply
  kReply = 4,
  kNotice = 5,  // door -> door, home to importer; answered by exactly one ack
  kAck = 6,
};

struct Frame {
  FrameKind kind{};
  uint16_t type = 0;     // of the request or notice; meaningless to the fabric
  uint64_t secret = 0;   // proves that the sender was told it by the receiver
  uint64_t number = 0;   // of the request or notice, counted by its sender from 1
  uint64_t settled = 0;  // the sender has the answers of all its numbers below this one
  Bytes payload;
  Bytes more = {};  // of a frame to be sent: goes behind the payload, as part of it
};

inline constexpr uint32_t kFrameMagic = 0x31494d43;  // "CMI1"
inline constexpr size_t kFrameHeader = 36;
inline constexpr size_t kNoticeHeader =
    24;  // sender and its secret, in front of a notice's payload

// By way of an array whose length the compiler knows, so that nothing is checked value by value.
inline void encode_frame_header(const Frame& f, Writer& out) {
  std::array<std::byte, kFrameHeader> header;
  Writer to(header);
  to.put<uint32_t>(kFrameMagic);
  to.put<uint8_t>(static_cast<uint8_t>(f.kind));
  to.put<uint8_t>(0);
  to.put<uint16_t>(f.type);
  to.put<uint64_t>(f.secret);
  to.put<uint64_t>(f.number);
  to.put<uint64_t>(f.settled);
  to.put<uint32_t>(static_cast<uint32_t>(f.payload.size() + f.more.size()));
  out.bytes(header);
}

inline size_t frame_size(const Frame& f) { return kFrameHeader + f.payload.size() + f.more.size(); }

inline void encode_frame(const Frame& f, Writer& out) {
  encode_frame_header(f, out);
  out.bytes(f.payload);
  out.bytes(f.more);
}

// False for anything that is not exactly one well-formed frame.
inline bool decode_frame(Bytes message, Frame* f) {
  if (message.size() < kFrameHeader) return false;
  Reader in(message.first(kFrameHeader));
  if (in.get<uint32_t>() != kFrameMagic) return false;
  auto kind = in.get<uint8_t>();
  if (kind < 1 || kind > 6 || in.get<uint8_t>() != 0) return false;
  f->kind = static_cast<FrameKind>(kind);
  f->type = in.get<uint16_t>();
  f->secret = in.get<uint64_t>();
  f->number = in.get<uint64_t>();
  f->settled = in.get<uint64_t>();
  auto length = in.get<uint32_t>();
  f->payload = message.subspan(kFrameHeader);
  return f->payload.size() == length;
}

}  // namespace cmi::fabric
