// What an importer and a home of one machine say over the socket that passes descriptors: one
// message each way. doc/design/local.md has the whole exchange.
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

}  // namespace cmi::memory
