// What a home tells an importer, and what the importer's acknowledgement says beside its number.
// Each begins with the import that it is about.
#pragma once

#include "core/memory/wire/replies.hpp"
#include "core/memory/wire/requests.hpp"

namespace cmi::memory {

struct HomeNotification {  // kGoodbye, kAlive
  static constexpr bool kOpenEnded = true;
  uint64_t uid = 0;  // both 0: no import is meant
  uint32_t instance = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance); }
};

// kInvalidate: the ranges are to be dropped; what is subscribed comes with its new words instead.
struct InvalidateNotification {
  struct Update {
    uint32_t page = 0, epoch = 0, number = 0;
    Bytes diff;
  };
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint16_t count = 0;
  Bytes body;  // ranges, then updates: u32 page, u32 epoch, u32 number, u16 length, diff
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.count); }
  bool check() const;
  PageRangeList ranges() const {
    return PageRangeList(body.first(size_t{count} * PageRangeList::kItem));
  }
  static void put(Writer& out, const Update& u) {
    out.put(u.page);
    out.put(u.epoch);
    out.put(u.number);
    out.blob(u.diff);
  }
};

// Takes the updates of an InvalidateNotification apart, in its order.
class PageUpdates {
 public:
  // Of a message with all its ranges.
  explicit PageUpdates(const InvalidateNotification& m)
      : in_(m.body.subspan(size_t{m.count} * PageRangeList::kItem)) {}
  // False: there is no more.
  [[nodiscard]] bool next(InvalidateNotification::Update* u) {
    if (!in_.ok() || in_.left() == 0) return false;
    u->page = in_.get<uint32_t>();
    u->epoch = in_.get<uint32_t>();
    u->number = in_.get<uint32_t>();
    u->diff = in_.blob();
    return in_.ok();
  }
  [[nodiscard]] bool end() const { return in_.done(); }  // behind the last; false: malformed

 private:
  Reader in_;
};

struct InFluxNotification {  // kInFlux
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint16_t count = 0;
  Bytes body;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.count); }
  bool check() const {
    return count <= kMaxRanges && body.size() == size_t{count} * PageRangeList::kItem;
  }
  PageRangeList ranges() const { return PageRangeList(body); }
};

struct RevokeNotification {  // kRevoke
  static constexpr bool kOpenEnded = true;
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint64_t token = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.token); }
};

struct RemovedNotification {  // kRemoved
  static constexpr bool kOpenEnded = true;
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint8_t how = 0;  // RemovedHow
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.how); }
};

struct QuiesceNotification {  // kQuiesce, kResume
  static constexpr bool kOpenEnded = true;
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint32_t round = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.round); }
};

struct BreakNotification {  // kBreak
  uint64_t uid = 0;
  uint32_t instance = 0;
  Break brk;
  uint64_t low = 0;  // what the import has from there on is of before
  static auto fields(auto& m) {
    return std::tie(m.uid, m.instance, m.brk.bytes, m.brk.round, m.low);
  }
  bool check() const { return legal_break(brk) && low <= brk.bytes && low % kPageSize == 0; }
};

// ---- Acknowledgements ----

// Regions, and pages of regions that it goes on holding, that the importer has released, behind the
// acknowledgement of an invalidation. Ends where the message ends: what is left of an item that was
// cut off counts for nothing.
struct ReleasedRegions {
  static constexpr uint32_t kPage = 0;  // in place of the epoch, which no region has
  struct Item {
    uint32_t index = 0, epoch = 0;  // of a region; or of a page, and kPage
  };
  static constexpr size_t kItem = 2 * sizeof(uint32_t);
  uint64_t uid = 0;
  uint32_t instance = 0;
  Bytes body;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance); }
  size_t size() const { return body.size() / kItem; }
  Item item(size_t i) const {
    Reader in(body.subspan(i * kItem, kItem));
    Item r;
    r.index = in.get<uint32_t>();
    r.epoch = in.get<uint32_t>();
    return r;
  }
  static void put(Writer& out, const Item& r) {
    out.put(r.index);
    out.put(r.epoch);
  }
};

}  // namespace cmi::memory
