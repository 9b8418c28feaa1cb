// Pages that importers follow (protocol rule 25): what goes to them along with the notice.
#include <algorithm>
#include <span>

#include "core/base/fault_point.hpp"
#include "core/memory/guarded_copy.hpp"
#include "core/memory/home.hpp"

namespace cmi::memory {

namespace {
constexpr size_t kUpdateHead = 3 * sizeof(uint32_t) + sizeof(uint16_t);
constexpr size_t kMaxUpdatedPages = 3;  // of one notice, where the whole of each is new
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
}  // namespace

void Home::on_follow(const fabric::ClientInfo& client, uint64_t number, Reader in) {
  const auto uid = in.get<uint64_t>();
  const auto instance = in.get<uint32_t>();
  const auto page = in.get<uint32_t>();
  const auto epoch = in.get<uint32_t>();
  WireStatus status = WireStatus::kMalformed;
  if (in.done() && epoch != 0) {
    Guard g(mu_);
    Segment* s = nullptr;
    Holder* h = nullptr;
    status = check(client.id, uid, instance, fabric::kRead, &s, &h);
    if (status == WireStatus::kOk && page >= s->brk.bytes / kPageSize) {
      status = WireStatus::kRange;
    } else if (status == WireStatus::kOk && !h->covers(page, 1)) {
      status = WireStatus::kRights;
    } else if (status == WireStatus::kOk) {
      h->follows.follow(page, epoch);
      s->followed |= uint64_t{1} << page % kFollowSlots;
    }
  }
  reply(parts_.server, client.id, number, status);
}

bool Home::followed(Segment& s, uint32_t page) {
  return (s.followed >> page % kFollowSlots & 1) != 0 &&
         std::any_of(s.holders.begin(), s.holders.end(),
                     [&](Holder& h) { return h.follows.follows(page); });
}

std::vector<StoredPage> Home::word_of(Segment& s, uint64_t offset) {
  const auto page = static_cast<uint32_t>(offset / kPageSize);
  if (!followed(s, page)) return {};
  StoredPage stored{page, {}};
  stored.words.set(offset % kPageSize / sizeof(uint64_t));
  return {stored};
}

std::vector<StoredPage> Home::whole_pages(Segment& s, const std::vector<PageRange>& ranges) {
  std::vector<StoredPage> stored;
  if (s.followed == 0) return stored;
  size_t left = kFollowSlots;  // who stores to more of them at once stores to none of them often
  for (const PageRange& r : ranges) {
    if (r.count > left) return {};
    left -= r.count;
    for (uint32_t page = r.first; page < r.first + r.count; ++page) {
      if (followed(s, page)) stored.push_back({page, StoredWords().set()});
    }
  }
  if (stored.size() > kMaxUpdatedPages) stored.resize(kMaxUpdatedPages);
  return stored;
}

// Empty: the memory is broken.
std::vector<std::byte> Home::words_at_home(const Segment& s, const StoredPage& p) {
  const std::byte* const at = s.service.data() + size_t{p.page} * kPageSize;
  std::byte buf[kMaxWordsSize];
  Writer diff(buf);
  if (!unless_broken(at, kPageSize, [&] { encode_words(at, p.words, diff); })) return {};
  return {buf, buf + diff.size()};
}

// Under mu_, like the notice that takes them along: what has a higher number was read later.
std::vector<std::byte> Home::updates_for(Segment& s, Holder& h,
                                         const std::vector<StoredPage>& stored, NewWords* words,
                                         std::vector<PageRange>* ranges) {
  std::vector<std::byte> updates;
  for (size_t i = 0; i < stored.size(); ++i) {
    const StoredPage& p = stored[i];
    HolderFollows::Slot* const slot = h.follows.find(p.page);
    // What it may read by its token, of memory that there is, and that it may access.
    if (slot == nullptr || (h.rights & fabric::kRead) == 0 || !h.covers(p.page, 1) ||
        p.page >= low_of(s, h) / kPageSize || s.in_flux.contains(p.page) ||
        h.regions.count(region_of(p.page)) == 0) {
      continue;
    }
    auto& diff = (*words)[i];
    if (!diff) diff = words_at_home(s, p);
    if (diff->empty()) continue;
    const size_t used = updates.size();
    if (used + kUpdateHead + diff->size() > kMaxUpdates) continue;
    updates.resize(used + kUpdateHead + diff->size());
    Writer out(std::span<std::byte>(updates).subspan(used));
    out.put(slot->page);
    out.put(slot->epoch);
    out.put(slot->number++);
    out.blob(*diff);
    take_out(p.page, ranges);
  }
  return updates;
}

}  // namespace cmi::memory
