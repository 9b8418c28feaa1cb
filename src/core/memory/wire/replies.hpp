// What a home answers: one struct for each reply that says more than a status. A status comes
// first. The structs are what follows kOk, or another status where they say so.
#pragma once

#include <algorithm>
#include <optional>

#include "core/memory/wire/message.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

struct Reply {
  WireStatus status = WireStatus::kMalformed;
  Bytes body;
};
// Nothing: the reply is empty.
inline std::optional<Reply> split_reply(Bytes bytes) {
  if (bytes.empty()) return std::nullopt;
  return Reply{static_cast<WireStatus>(bytes[0]), bytes.subspan(1)};
}

// A break as it ends a message about an extensible segment; of others nothing is there.
struct BreakPart {
  Break brk;
  static auto fields(auto& m) { return std::tie(m.brk.bytes, m.brk.round); }
  bool check() const { return legal_break(brk); }
};

// Whether the segment is quiesced, at the end of the answer to *open*.
struct QuiescePart {
  uint32_t round = 0;
  uint8_t on = 0;
  static auto fields(auto& m) { return std::tie(m.round, m.on); }
  bool check() const { return on <= 1; }
};

// What the home can do beyond the first version of this protocol, behind that.
struct FeaturesPart {
  static constexpr uint32_t kSwapFetch = 1;     // it takes RequestType::kSwapFetch
  static constexpr uint32_t kAcquireFetch = 2;  // it takes RequestType::kAcquireFetch
  uint32_t bits = 0;
  static auto fields(auto& m) { return std::tie(m.bits); }
};

struct OpenReply {
  uint64_t size = 0;
  int32_t flags = 0, attrib = 0;
  uint16_t lifeline_port = 0;
  uint64_t lifeline_secret = 0;
  Bytes body;  // BreakPart of an extensible segment, QuiescePart, FeaturesPart
  static auto fields(auto& m) {
    return std::tie(m.size, m.flags, m.attrib, m.lifeline_port, m.lifeline_secret);
  }
  Bytes break_part() const { return body.first(std::min(body.size(), kWireSize<BreakPart>)); }
  // Homes of before say nothing here.
  Bytes quiesce_part(bool extensible) const {
    const Bytes rest = body.subspan(extensible ? break_part().size() : 0);
    return rest.first(std::min(rest.size(), kWireSize<QuiescePart>));
  }
  // The same. What stands behind that is ignored.
  Bytes features_part(bool extensible) const {
    const Bytes rest = body.subspan(extensible ? break_part().size() : 0);
    const Bytes features = rest.subspan(std::min(rest.size(), kWireSize<QuiescePart>));
    return features.first(std::min(features.size(), kWireSize<FeaturesPart>));
  }
};

struct AskHolderReply {
  uint8_t gone = 0;
  static auto fields(auto& m) { return std::tie(m.gone); }
  bool check() const { return gone <= 1; }
};

struct PresentTokenReply {
  uint64_t key = 0, base = 0;
  uint32_t rights = 0;
  uint32_t first = 0, count = 0;  // the pages that the token is for
  uint16_t raw_key_size = 0;
  Bytes body;  // the provider's raw key; then BreakPart of an extensible segment
  static auto fields(auto& m) {
    return std::tie(m.key, m.base, m.rights, m.first, m.count, m.raw_key_size);
  }
  bool check() const { return body.size() >= raw_key_size; }
  Bytes raw_key() const { return body.first(raw_key_size); }
  Bytes behind_key() const { return body.subspan(raw_key_size); }
};

struct LocalOfferReply {
  static constexpr size_t kMaxPath = 1024;
  uint8_t refusal = 0;  // LocalRefusal
  uint64_t ticket_hi = 0, ticket_lo = 0;
  uint32_t slot = 0;
  Bytes body;  // path of the home's node's folder
  static auto fields(auto& m) { return std::tie(m.refusal, m.ticket_hi, m.ticket_lo, m.slot); }
  bool check() const {
    return refusal <= static_cast<uint8_t>(LocalRefusal::kLast) && body.size() <= kMaxPath;
  }
};

struct CasReply {  // with every status
  static constexpr bool kOpenEnded = true;
  uint64_t found = 0;
  static auto fields(auto& m) { return std::tie(m.found); }
};

// With kOk, which is about the stores: all of them are published.
struct PublishSwapReply {
  uint8_t swap = 0;  // WireStatus of the swap. kNotPresented: it was not made, and may be asked for
  uint64_t found = 0;
  static auto fields(auto& m) { return std::tie(m.swap, m.found); }
  bool check() const { return swap <= static_cast<uint8_t>(WireStatus::kImportedOtherwise); }
};

// The same, with what was asked for.
struct SwapFetchReply {
  uint8_t swap = 0;
  uint64_t found = 0;
  uint8_t intent = 0;  // 1: it is set
  Bytes body;          // the page, where it is brought
  static auto fields(auto& m) { return std::tie(m.swap, m.found, m.intent); }
  bool check() const {
    return swap <= static_cast<uint8_t>(WireStatus::kImportedOtherwise) && intent <= 1 &&
           (body.empty() || body.size() == kPageSize);
  }
};

}  // namespace cmi::memory
