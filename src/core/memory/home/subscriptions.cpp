#include "core/memory/home/subscriptions.hpp"

#include <algorithm>
#include <span>

#include "core/base/fault_point.hpp"
#include "core/memory/vm/guarded_copy.hpp"
#include "core/memory/wire/notifications.hpp"
#include "fabric/server.hpp"

namespace cmi::memory {

namespace {
constexpr size_t kUpdateHead = 3 * sizeof(uint32_t) + sizeof(uint16_t);
constexpr size_t kMaxUpdatedPages = 3;  // of one notification, where the whole of each is new
constexpr size_t kMaxUpdates = kMaxUpdatedPages * (kUpdateHead + kMaxWordsSize);
static_assert(sizeof(uint64_t) + 2 * sizeof(uint32_t) + kMaxRanges * sizeof(PageRange) +
                  kMaxUpdates <=
              fabric::kMaxPayload);

void take_out(uint32_t page, std::vector<PageRange>* ranges) {
  for (size_t i = 0; i < ranges->size(); ++i) {
    PageRange& r = (*ranges)[i];
    if (page < r.first || page - r.first >= r.count) continue;
    const PageRange behind{page + 1, r.first + r.count - page - 1};
    r.count = page - r.first;
    const bool empty = r.count == 0;
    if (empty) r = behind;
    if (!empty && behind.count > 0) {
      ranges->insert(ranges->begin() + static_cast<ptrdiff_t>(i) + 1, behind);
    } else if (empty && behind.count == 0) {
      ranges->erase(ranges->begin() + static_cast<ptrdiff_t>(i--));
    }
  }
}

// Empty: the memory is broken.
std::vector<std::byte> words_at_home(const Segment& s, const StoredPage& p) {
  const std::byte* const at = s.service.data() + size_t{p.page} * kPageSize;
  std::byte buf[kMaxWordsSize];
  Writer diff(buf);
  if (!unless_broken(at, kPageSize, [&] { encode_words(at, p.words, diff); })) return {};
  return {buf, buf + diff.size()};
}
}  // namespace

bool subscribed(Segment& s, uint32_t page) {
  return (s.subscribed >> page % kSubscriptionSlots & 1) != 0 &&
         std::any_of(s.sharers.begin(), s.sharers.end(),
                     [&](Sharer& h) { return h.subscriptions.has(page); });
}

bool may_be_subscribed(const Segment& s, uint32_t page) {
  return (s.subscribed >> page % kSubscriptionSlots & 1) != 0 &&
         std::any_of(s.sharers.begin(), s.sharers.end(),
                     [&](const Sharer& h) { return h.subscriptions.may_have(page); });
}

std::vector<StoredPage> word_of(Segment& s, uint64_t offset) {
  const auto page = static_cast<uint32_t>(offset / kPageSize);
  if (!subscribed(s, page)) return {};
  StoredPage stored{page, {}};
  stored.words.set(offset % kPageSize / sizeof(uint64_t));
  return {stored};
}

std::vector<StoredPage> whole_pages(Segment& s, const std::vector<PageRange>& ranges) {
  std::vector<StoredPage> stored;
  if (s.subscribed == 0) return stored;
  size_t left = kSubscriptionSlots;  // a process that stores to more at once stores to none often
  for (const PageRange& r : ranges) {
    if (r.count > left) return {};
    left -= r.count;
    for (uint32_t page = r.first; page < r.first + r.count; ++page) {
      if (subscribed(s, page)) stored.push_back({page, StoredWords().set()});
    }
  }
  if (stored.size() > kMaxUpdatedPages) stored.resize(kMaxUpdatedPages);
  return stored;
}

std::vector<std::byte> updates_for(Segment& s, Sharer& h, const std::vector<StoredPage>& stored,
                                   NewWords* words, std::vector<PageRange>* ranges) {
  std::vector<std::byte> updates;
  for (size_t i = 0; i < stored.size(); ++i) {
    const StoredPage& p = stored[i];
    SharerSubscriptions::Slot* const slot = h.subscriptions.find(p.page);
    // What it may read by its token, of memory that there is, and that it may access.
    if (slot == nullptr || (h.granted.rights & fabric::kRead) == 0 || !h.covers(p.page, 1) ||
        p.page >= low_of(s, h) / kPageSize || s.flux.pages.contains(p.page) ||
        !h.regions.may_have(p.page)) {
      continue;
    }
    auto& diff = (*words)[i];
    if (!diff) diff = words_at_home(s, p);
    if (diff->empty()) continue;
    const size_t used = updates.size();
    if (used + kUpdateHead + diff->size() > kMaxUpdates) continue;
    updates.resize(used + kUpdateHead + diff->size());
    Writer out(std::span<std::byte>(updates).subspan(used));
    InvalidateNotification::put(out, {slot->page, slot->epoch, slot->number++, *diff});
    take_out(p.page, ranges);
  }
  return updates;
}

}  // namespace cmi::memory
