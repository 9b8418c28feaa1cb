// What a context answers to a question over the bus: its counters, tokens by fingerprint,
// importers, imports and links. No secret is in there. Pure; decoding trusts nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/codec.hpp"
#include "core/base/ids.hpp"
#include "core/base/status.hpp"

namespace cmi::node {

// In the order of ContextReport::counters. The names are those of struct cmi_ofi_stats.
inline constexpr std::array kCounterNames{
    "load_misses",
    "store_misses",
    "store_faults",
    "pages_fetched",
    "bytes_fetched",
    "bytes_written_back",
    "pages_written_back",
    "publications",
    "invalidations_received",
    "cas_calls",
    "cas_lost",
    "exceptions",
    "messages_dropped",
    "pages_evicted",
    "most_unanswered",
    "ticks",
    "pages_updated",
    "publications_received",
    "invalidations_useless",
};

// In the order of ImportLine::counters.
inline constexpr std::array kImportCounterNames{
    "load_misses",  "store_misses",           "bytes_fetched", "bytes_written_back",
    "publications", "invalidations_received", "exceptions",    "invalidations_useless",
};

// Names a token without giving away what proves it: its secret has no part in it.
inline uint32_t token_fingerprint(uint64_t token_id) {
  const uint64_t h = checksum(std::as_bytes(std::span(&token_id, 1)));
  return static_cast<uint32_t>(h ^ h >> 32);
}

struct TokenLine {
  uint32_t fingerprint = 0;
  uint32_t rights = 0;
  NodeId node;  // none: any
  bool revoked = false;
};

struct SharerLine {  // one import of one client of a segment at home
  ContextId client;
  uint32_t instance = 0;
  uint32_t rights = 0;  // of the token presented; 0: none, or revoked
};

struct HomeLine {
  int32_t id = 0;
  std::vector<TokenLine> tokens;
  std::vector<SharerLine> sharers;
  // Since it was made: times that some of its pages were published, and notifications about it.
  uint64_t publications = 0, notifications = 0;
};

struct ImportLine {
  int32_t id = 0;
  uint8_t state = 0;  // memory::ImportState
  uint32_t rights = 0;
  uint32_t fingerprint = 0;  // of the token in use; 0: none
  ContextId home;
  uint64_t cached = 0;  // bytes of memory that its cache takes
  uint64_t limit = 0;   // bytes that it may take; 0: no limit
  uint64_t dirty = 0;   // pages with stores that are not home yet
  std::array<uint64_t, kImportCounterNames.size()> counters{};
};

struct LinkLine {
  ContextId home;
  bool dead = false;         // given up for good
  uint64_t silent = 0;       // nanoseconds since the home was heard of; 0: never
  uint64_t unreachable = 0;  // nanoseconds since no session could be had; 0: there is one
  uint64_t took = 0;         // nanoseconds from a request to its answer, the last time; 0: none yet
  std::string way;           // provider and address of the home's listener that it goes to
};

struct ContextReport {
  std::array<uint64_t, kCounterNames.size()> counters{};
  std::vector<HomeLine> homes;
  std::vector<ImportLine> imports;
  std::vector<LinkLine> links;
  std::vector<std::string> listeners;  // where it is reached: provider and address of each
};

std::vector<std::byte> encode_report(const ContextReport& report);
// kInval: damaged, or of another version.
Result<ContextReport> decode_report(Bytes bytes);

}  // namespace cmi::node
