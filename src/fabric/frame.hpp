// The frame around every message between contexts. See doc/design/wire.md.
// Pure; any thread.
#pragma once

#include <array>
#include <cstdint>

#include "core/base/codec.hpp"

namespace cmi::fabric {

enum class FrameKind : uint8_t {
  kHello = 1,    // initiator -> listener: who I am, where I listen
  kWelcome = 2,  // serving endpoint -> initiator: your session
  kRequest = 3,  // initiator -> serving endpoint; answered by one reply, or by direct acks
  kReply = 4,
  kNotification = 5,  // listener -> listener, home to importer; answered by an ack or a direct ack
  kAck = 6,
  kDirectAck = 7,   // listener -> initiator: a notification that its request caused is carried out
  kAckedBelow = 8,  // initiator -> serving endpoint: what needs no answer any more
  kRefusal = 9,     // listener -> initiator: no session, the home is short of descriptors
};

struct Frame {
  FrameKind kind{};
  // Of the request or notification; no meaning to the fabric. Of a reply: TokensSent.
  uint16_t type = 0;
  uint64_t secret = 0;  // proves that the sender has it from the receiver
  uint64_t number = 0;  // of the request or notification, counted by its sender from 1
  // The sender has the answers of all its numbers below this one. Of a notification: the number of
  // the request whose sender is to have a direct ack; 0: none. Of a reply: how many requests
  // without an answer the client may have from now on, its credit (Intake); 0: as many as a link
  // ever has.
  uint64_t acked_below = 0;
  Bytes payload;
  Bytes more = {};  // of a frame to be sent: goes behind the payload, as part of it
};

// Whether a home has sent ack tokens for the request that it answers.
enum class TokensSent : uint16_t { kNo = 0, kYes = 1 };

// The answer that stands for all direct acks of a request; never on the wire.
inline constexpr std::array<std::byte, 1> kReceived{};
inline bool is_direct_acks(Bytes answer) { return answer.data() == kReceived.data(); }

// Direct acks that may together be the answer to one request: one to each notification.
inline constexpr size_t kMostDirectAcks = 16;
// Numbers that a frame kAckedBelow names beside `acked_below`.
inline constexpr size_t kMostAckedBelow = 1024;

inline constexpr uint32_t kFrameMagic = 0x31494d43;  // "CMI1"
inline constexpr size_t kFrameHeader = 36;
inline constexpr size_t kNotificationHeader =
    24;  // sender and its secret, in front of a notification's payload
// Behind those, where the client is to have a direct ack: the ack token, and the address.
inline constexpr size_t kMaxDirectAckAddress = 48;
inline constexpr size_t kDirectAckHeader =
    sizeof(uint64_t) + sizeof(uint16_t) + kMaxDirectAckAddress;

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
  to.put<uint64_t>(f.acked_below);
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
  if (kind < 1 || kind > 9 || in.get<uint8_t>() != 0) return false;
  f->kind = static_cast<FrameKind>(kind);
  f->type = in.get<uint16_t>();
  f->secret = in.get<uint64_t>();
  f->number = in.get<uint64_t>();
  f->acked_below = in.get<uint64_t>();
  auto length = in.get<uint32_t>();
  f->payload = message.subspan(kFrameHeader);
  return f->payload.size() == length;
}

}  // namespace cmi::fabric
