// What an importer and a home of one machine say over the socket that passes descriptors: one
// message each way, or one alone. doc/design/local.md has the whole exchange.
#pragma once

#include "core/memory/wire/message.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

// The importer's. Beside it the userfaultfd that watches its views, where there are any.
struct LocalAsk {
  static constexpr size_t kMostViews = 256;
  uint64_t ticket_hi = 0, ticket_lo = 0;  // of the offer that the home has made over the link
  Bytes body;                             // u64 address of each view
  static auto fields(auto& m) { return std::tie(m.ticket_hi, m.ticket_lo); }
  bool check() const {
    return body.size() % sizeof(uint64_t) == 0 && body.size() / sizeof(uint64_t) <= kMostViews;
  }
};

// The home's. Beside it the segment's file and that of the marks (local_control.hpp). Without
// these: nothing is granted.
struct LocalGranted {
  enum : uint8_t {
    kNothing = 0,   // granted, or the token was revoked meanwhile
    kLacking = 1,   // the home has no memory or descriptors for it
    kStranger = 2,  // nobody here has given the ticket: another context than the one that was asked
  };
  uint8_t writable = 0;  // the segment's file is open for reading and writing
  uint8_t why_not = kNothing;
  static auto fields(auto& m) { return std::tie(m.writable, m.why_not); }
  bool check() const { return writable <= 1 && why_not <= kStranger; }
};

// The importer's, for a link: rings by which requests and notifications go from now on. Beside it
// memory and socket of the first, then of the second. The answer comes by the ring.
struct RingAsk {
  static constexpr size_t kFds = 4;
  uint64_t client_hi = 0, client_lo = 0;
  uint64_t secret = 0;  // of the client's session, as its requests carry it
  static auto fields(auto& m) { return std::tie(m.client_hi, m.client_lo, m.secret); }
};

}  // namespace cmi::memory
