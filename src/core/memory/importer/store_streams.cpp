// Matching first stores to streams.
#include "core/memory/importer/store_streams.hpp"

#include <algorithm>

namespace cmi::memory {

namespace {
// Of a stream of so many pages.
uint32_t widest(uint32_t length) {
  constexpr uint32_t kLong = StoreStreams::kLongWindow;
  const uint32_t part = std::max(kLong, length / StoreStreams::kPartOfStream);
  return std::min({length, part, StoreStreams::kMaxWindow});
}
}  // namespace

uint32_t StoreStreams::store(uint32_t page) {
  Guard g(mu_);
  for (Stream& s : streams_) {
    if (s.end != page) continue;
    const uint32_t last = s.end - s.at;
    s.length += last;
    const uint32_t window = s.length + 1 < kFrom ? 1 : std::min(2 * last, widest(s.length));
    s.at = page;
    s.end = page + window;
    return window;
  }
  for (Stream& s : streams_) {
    // Made writable before and protected again since: barriers come faster than pages are stored
    // to, and what is made writable ahead is only compared by them.
    if (page < s.at || page >= s.end) continue;
    s = {page, page + 1, 0};
    return 1;
  }
  streams_[victim_++ % streams_.size()] = {page, page + 1, 0};
  return 1;
}

void StoreStreams::taken(uint32_t page, uint32_t end) {
  Guard g(mu_);
  for (Stream& s : streams_) {
    if (s.at == page) s.end = end;
  }
}

}  // namespace cmi::memory
