// Matching misses to readers.
#include "core/memory/importer/read_streams.hpp"

#include <algorithm>

namespace cmi::memory {

[[gnu::hot]] uint32_t Streams::miss(uint32_t page) {
  Guard g(mu_);
  for (Stream& s : streams_) {
    if (s.end != page) continue;
    s.at = page;
    s.end = page + 1;
    // Two in a row may be chance.
    s.window = s.window == 0 ? 1 : std::min(s.window * 2, kMaxWindow);
    return s.window;
  }
  Stream& s = streams_[victim_++ % streams_.size()];
  s = {page, page + 1, 0};
  return 1;
}

void Streams::taken(uint32_t page, uint32_t end) {
  Guard g(mu_);
  for (Stream& s : streams_) {
    if (s.at == page) s.end = end;
  }
}

PageRange Streams::ahead(uint32_t page, uint32_t pages) {
  Guard g(mu_);
  for (Stream& s : streams_) {
    if (s.window < kAheadFrom || page < s.at || page >= s.end) continue;
    s.at = page;
    const uint64_t goal = std::min<uint64_t>(pages, uint64_t{page} + kDepth);
    if (s.end >= goal) return {};
    s.window = std::min(s.window * 2, kMaxWindow);
    const PageRange next{s.end, std::min(s.window, static_cast<uint32_t>(goal) - s.end)};
    s.end += next.count;
    return next;
  }
  return {};
}

}  // namespace cmi::memory
