#include <unistd.h>

#include <cstring>

#include "core/base/fault_point.hpp"
#include "core/base/mutation.hpp"
#include "core/memory/home/access_check.hpp"
#include "core/memory/home/requests/acquire_regions.hpp"
#include "core/memory/home/requests/handlers.hpp"
#include "core/memory/home/requests/may_intend.hpp"
#include "core/memory/home/segment_lock.hpp"
#include "core/memory/vm/guarded_copy.hpp"

namespace cmi::memory {

namespace {
// The page is entered, and the dirty intent set, if it is wanted, before it is read (rule 28).
// *before: the intent that the page had; 0: none.
WireStatus enter(HomeCore& home, Segment& s, Sharer& h, const DirtyIntent& intent, uint8_t* before)
    CMI_EXCLUDES(home.mu) {
  Guard g(home.mu);
  const PageRange page{intent.page, 1};
  const WireStatus status =
      intent.epoch != 0 ? may_intend(s, h, intent.page) : may_enter(s, h, page);
  if (status != WireStatus::kOk) return status;
  h.regions.enter(page, home.rounds.table().next_number());
  if (intent.epoch != 0) *before = h.intents.set(intent.page, intent.epoch);
  return status;
}

void take_back(HomeCore& home, Sharer& h, const DirtyIntent& intent, uint8_t before)
    CMI_EXCLUDES(home.mu) {
  Guard g(home.mu);
  if (h.intents.epoch(intent.page) == intent.epoch) (void)h.intents.set(intent.page, before);
}

// Whether nobody has ever stored to the page. It has no memory then, and to read it would take
// some, by a fault of the kernel's that the importer would wait for. Looked at only while all pages
// of the region that the importer has asked for were such ones.
bool is_hole(HomeCore& home, const Segment& s, Sharer& h, uint32_t page) CMI_EXCLUDES(home.mu) {
  if (access::reserved(s.flags)) return false;
  const uint32_t region = region_of(page);
  {
    Guard g(home.mu);
    if (!h.regions.sparse(region)) return false;
  }
  const auto at = static_cast<off_t>(size_t{page} * kPageSize);
  if (::lseek(s.file.get(), at, SEEK_HOLE) == at) return true;
  Guard g(home.mu);
  h.regions.not_sparse(region);
  return false;
}

// False: the memory is broken.
bool read_page(HomeCore& home, const Segment& s, Sharer& h, uint32_t page, std::byte* to)
    CMI_EXCLUDES(home.mu) {
  if (is_hole(home, s, h, page)) {
    std::memset(to, 0, kPageSize);
    return true;
  }
  const std::byte* const at = s.service.data() + size_t{page} * kPageSize;
  return unless_broken(at, kPageSize, [&] { std::memcpy(to, at, kPageSize); });
}

// What is read here is what a one-sided read would find between the request and the answer. `held`:
// what the importer holds from now on; null: it holds the page's region already.
void fetch_page(HomeCore& home, const fabric::ClientInfo& client, uint64_t number, uint64_t uid,
                uint32_t instance, const DirtyIntent& intent, const AcquireRequest* held) {
  std::byte answer[1 + kPageSize];
  WireStatus status = WireStatus::kMalformed;
  {
    const SegmentLock s(home, Uid{uid}, SegmentLock::kMemory);
    Sharer* h = nullptr;
    uint8_t before = 0;
    const uint32_t rights = intent.epoch != 0 ? fabric::kRead | fabric::kWrite : fabric::kRead;
    status = check(home, s.get(), client.id, instance, rights, &h);
    if (status == WireStatus::kOk && held != nullptr && !mutated("mutate_region_not_held")) {
      status = acquire_regions(home, *s, *h, *held);
    }
    if (status == WireStatus::kOk) status = enter(home, *s, *h, intent, &before);
    if (status == WireStatus::kOk && !read_page(home, *s, *h, intent.page, answer + 1)) {
      if (intent.epoch != 0) take_back(home, *h, intent, before);
      status = WireStatus::kBroken;
    }
  }
  if (intent.epoch != 0) {
    fault_point("intent_before_reply");
  } else {
    fault_point("hold_before_reply");
  }
  answer[0] = static_cast<std::byte>(status);
  const size_t content = status == WireStatus::kOk ? kPageSize : 0;
  home.parts.server.reply(client.id, number, {answer, 1 + content});
}
}  // namespace

// A store miss in one exchange.
void on_fetch_with_intent(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                          const FetchWithIntentRequest& m) {
  fetch_page(home, client, number, m.uid, m.instance, m.intent, nullptr);
}

// The first miss in a region in one exchange.
void on_acquire_fetch(HomeCore& home, const fabric::ClientInfo& client, uint64_t number,
                      const AcquireFetchRequest& m) {
  const AcquireRequest region{m.uid, m.instance, region_of(m.intent.page), 1, m.region_epoch};
  fetch_page(home, client, number, m.uid, m.instance, m.intent, &region);
}

}  // namespace cmi::memory
