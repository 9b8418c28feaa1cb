// What a context answers to a question over the bus: its counters, tokens by fingerprint,
// importers, imports and links. No secret is in there. Pure; decoding trusts nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/codec.hpp"
#include "core/base/histogram.hpp"
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
    "intents_asked",
    "swaps_with_page",
    "requests_held_back",
    "twins_short",
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

struct PageWriterLine {  // of a page at home
  ContextId by;          // none: a process of the home's own node
  uint64_t publications = 0;
  // Bit i: it has published a change of the 8 bytes at 8 * i. None: where it stores is not known.
  std::array<uint64_t, kPageSize / 512> words{};
};

struct PublishedPageLine {  // a page at home
  uint32_t page = 0;
  uint64_t publications = 0, notices = 0;
  uint64_t bounces = 0;       // publications by another context than the one before
  bool more_writers = false;  // than are listed
  std::vector<PageWriterLine> writers;
};

struct PageCost {
  uint64_t load_misses = 0, store_misses = 0, first_stores = 0;
  uint64_t notices = 0, useless = 0;  // messages that named it, and those that found nothing
};

struct PageCostLine {  // of an import
  uint32_t first = 0;  // page, or the first one of a region
  PageCost cost;
};

struct HomeLine {
  int32_t id = 0;
  std::vector<TokenLine> tokens;
  std::vector<SharerLine> sharers;
  // Since it was made: times that some of its pages were published, and notifications about it.
  uint64_t publications = 0, notifications = 0;
  std::vector<PublishedPageLine> pages;  // that were published most, the first one most of all
};

struct ImportLine {
  int32_t id = 0;
  uint8_t state = 0;  // memory::ImportState
  uint32_t rights = 0;
  uint32_t fingerprint = 0;  // of the token in use; 0: none
  ContextId home;
  int32_t home_segment = 0;
  uint64_t cached = 0;  // bytes of memory that its cache takes
  uint64_t limit = 0;   // bytes that it may take; 0: no limit
  uint64_t dirty = 0;   // pages with stores that are not home yet
  std::array<uint64_t, kImportCounterNames.size()> counters{};
  std::vector<PageCostLine> pages, regions;  // that cost most, the first one most of all
  std::string way;  // "mapped", or "cached" and why it is not mapped; empty: it has had no view
};

struct LinkLine {
  ContextId home;
  bool dead = false;         // given up for good
  uint64_t silent = 0;       // nanoseconds since the home was heard of; 0: never
  uint64_t unreachable = 0;  // nanoseconds since no session could be had; 0: there is one
  uint64_t took = 0;         // nanoseconds from a request to its answer, the last time; 0: none yet
  std::string way;           // provider and address of the home's listener that it goes to
};

// In the order of ContextReport::times. Misses are one in kMissesTimed; barriers those that had
// something to publish, once on each side that had.
inline constexpr std::array kTimeNames{"misses", "barriers", "swaps"};
inline constexpr uint64_t kMissesTimed = 16;

struct TimesLine {
  uint64_t sum = 0;  // nanoseconds
  HistogramCounts counts{};
};

// Which segment a map is asked of: by its home's context and its id there.
struct MapQuestion {
  ContextId home;
  int32_t segment = 0;
  bool at_home = false;  // the asked context is the home; else it may be an importer
};

// What is known of each page of a segment, several pages in a cell if there are many.
enum MapMark : uint8_t {
  kMapHeld = 1,   // at home: some importer may have it; at an importer: it is cached
  kMapDirty = 2,  // at an importer: it has stores that are not home yet
  kMapFlux = 4,
  kMapMany = 8,  // at home: several importers may have it
};
inline constexpr uint32_t kMapCells = 1024;  // at most

struct MapLine {
  bool at_home = false;
  uint32_t pages = 0, per_cell = 1;
  std::vector<uint8_t> cells;  // of MapMark

  MapLine() = default;
  MapLine(bool home, uint32_t all)
      : at_home(home),
        pages(all),
        per_cell(all / kMapCells + (all % kMapCells != 0 ? 1 : 0)),
        cells(all == 0 ? 0 : (all - 1) / per_cell + 1) {}
  // All of the pages lie in the segment.
  void mark(uint32_t first, uint32_t count, uint8_t marks) {
    for (uint32_t c = first / per_cell; count > 0 && c <= (first + count - 1) / per_cell; ++c)
      cells[c] |= marks;
  }
};

struct ContextReport {
  std::array<uint64_t, kCounterNames.size()> counters{};
  std::array<TimesLine, kTimeNames.size()> times{};
  std::vector<MapLine> maps;  // of the segment that was asked of
  std::vector<HomeLine> homes;
  std::vector<ImportLine> imports;
  std::vector<LinkLine> links;
  std::vector<std::string> listeners;  // where it is reached: provider and address of each
};

std::vector<std::byte> encode_report(const ContextReport& report);
// kInval: damaged, or of another version.
Result<ContextReport> decode_report(Bytes bytes);

}  // namespace cmi::node
