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
  uint8_t writable = 0;  // the segment's file is open for reading and writing
  uint8_t lacking = 0;   // of nothing: the home has no memory or descriptors for it
  static auto fields(auto& m) { return std::tie(m.writable, m.lacking); }
  bool check() const { return writable <= 1 && lacking <= 1; }
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
