// What an importer asks of a home, and what it is answered. One struct for each request and for
// each reply that says more than a status; doc/design/wire.md shows them as tables, message.hpp how
// they become bytes. Segments are named by uid, imports by (client context, instance).
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>

#include "core/memory/wire/message.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

// ---- Parts of several messages ----

// Pages of a segment as they follow each other in a message: u32 first, u32 count.
class PageRangeList {
 public:
  static constexpr size_t kItem = 2 * sizeof(uint32_t);
  PageRangeList() = default;
  explicit PageRangeList(Bytes bytes) : bytes_(bytes) {}  // a whole number of them
  size_t size() const { return bytes_.size() / kItem; }
  PageRange operator[](size_t i) const {
    Reader in(bytes_.subspan(i * kItem, kItem));
    PageRange r;
    r.first = in.get<uint32_t>();
    r.count = in.get<uint32_t>();
    return r;
  }
  static void put(Writer& out, const PageRange& r) {
    out.put(r.first);
    out.put(r.count);
  }

 private:
  Bytes bytes_;
};

// Dirty intents: u32 page, u8 epoch.
class PageMarkList {
 public:
  PageMarkList() = default;
  explicit PageMarkList(Bytes bytes) : bytes_(bytes) {}  // a whole number of them
  size_t size() const { return bytes_.size() / kDirtyIntentSize; }
  DirtyIntent operator[](size_t i) const {
    Reader in(bytes_.subspan(i * kDirtyIntentSize, kDirtyIntentSize));
    DirtyIntent m;
    m.page = in.get<uint32_t>();
    m.epoch = in.get<uint8_t>();
    return m;
  }
  static void put(Writer& out, const DirtyIntent& m) {
    out.put(m.page);
    out.put(m.epoch);
  }

 private:
  Bytes bytes_;
};

// ---- Requests ----

struct OpenRequest {  // kOpen, kOpenWriteThrough -> OpenReply
  uint64_t uid = 0;
  uint32_t instance = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance); }
  bool check() const { return instance != 0; }
};

struct PresentTokenRequest {  // kPresentToken, kPresentTokenWriteThrough -> PresentTokenReply
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint64_t token = 0, secret = 0;
  uint64_t node_hi = 0, node_lo = 0;
  static auto fields(auto& m) {
    return std::tie(m.uid, m.instance, m.token, m.secret, m.node_hi, m.node_lo);
  }
};

struct LeaveRequest {  // kLeave
  uint64_t uid = 0;
  uint32_t instance = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance); }
};

// kPublish. Pages are decoded one by one as the home applies them: where a diff ends is known only
// when its runs have been walked through, and that is done once. What was applied before a
// malformed page stays applied, and is published.
struct PublishRequest {
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint32_t pages = 0;
  Bytes body;  // per page: u32 page, u8 epoch, diff; then u64 secret of the direct acks
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.pages); }
};

// Takes a PublishRequest's body apart, in its order.
class PublishedPages {
 public:
  explicit PublishedPages(const PublishRequest& m) : in_(m.body) {}
  // False: the message ends here. The diff follows: it must be taken from diff() before the next
  // page.
  [[nodiscard]] bool next(DirtyIntent* page) {
    page->page = in_.get<uint32_t>();
    page->epoch = in_.get<uint8_t>();
    return in_.ok();
  }
  Reader& diff() { return in_; }
  // Behind the last page. False: the secret is missing, or something follows it.
  [[nodiscard]] bool end(uint64_t* secret) {
    *secret = in_.get<uint64_t>();
    return in_.done();
  }

 private:
  Reader in_;
};

struct AnnounceRequest {  // kAnnounce: the data went by itself
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint32_t count = 0;
  Bytes body;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.count); }
  bool check() const {
    return body.size() % PageRangeList::kItem == 0 && body.size() / PageRangeList::kItem == count;
  }
  PageRangeList ranges() const { return PageRangeList(body); }
};

struct RepairRequest {  // kRepair
  static constexpr size_t kItem = sizeof(uint32_t) + 2 * kPageSize;
  struct Page {
    uint32_t page = 0;
    Bytes old, next;  // each of one page
  };
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint32_t pages = 0;
  Bytes body;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.pages); }
  bool check() const { return body.size() % kItem == 0 && body.size() / kItem == pages; }
  Page page(size_t i) const {
    Reader in(body.subspan(i * kItem, kItem));
    Page p;
    p.page = in.get<uint32_t>();
    p.old = in.bytes(kPageSize);
    p.next = in.bytes(kPageSize);
    return p;
  }
  static void put(Writer& out, const Page& p) {
    out.put(p.page);
    out.bytes(p.old);
    out.bytes(p.next);
  }
};

struct CasRequest {  // kCas -> CasReply
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint64_t offset = 0, expected = 0, desired = 0;
  static auto fields(auto& m) {
    return std::tie(m.uid, m.instance, m.offset, m.expected, m.desired);
  }
};

struct CauseRequest {  // kCause -> status, CauseReply where extensible
  uint64_t uid = 0;
  uint32_t instance = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance); }
};

struct AcquireRequest {  // kAcquire: regions
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint32_t first = 0, count = 0, epoch = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.first, m.count, m.epoch); }
};

struct DirtyIntentRequest {  // kDirtyIntent, kDropIntent
  uint64_t uid = 0;
  uint32_t instance = 0;
  Bytes body;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance); }
  bool check() const { return body.size() % kDirtyIntentSize == 0; }
  PageMarkList marks() const { return PageMarkList(body); }
};

struct AskFluxRequest {  // kAskFlux
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint32_t page = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.page); }
};

struct FetchMarkedRequest {  // kFetchWithIntent -> the page
  uint64_t uid = 0;
  uint32_t instance = 0;
  DirtyIntent mark;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.intent.page, m.intent.epoch); }
  bool check() const { return mark.epoch != 0; }
};

struct SubscribeRequest {  // kSubscribe
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint32_t page = 0, epoch = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.page, m.epoch); }
  bool check() const { return epoch != 0; }
};

struct GoodbyeRequest {  // kGoodbye
  static auto fields(auto&) { return std::tie(); }
};

struct ReturnedRequest {  // kReturned
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint32_t round = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.round); }
};

struct AliveRequest {  // kAlive
  static constexpr bool kOpenEnded = true;
  static auto fields(auto&) { return std::tie(); }
};

struct LoadRequest {  // kLoad -> the bytes
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint64_t offset = 0;
  uint32_t length = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.offset, m.length); }
  bool check() const { return length <= kMaxWriteThrough; }
};

struct StoreRequest {  // kStore
  struct Run {
    uint16_t at = 0;  // from `offset` on
    Bytes bytes;
  };
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint64_t offset = 0;
  uint32_t runs = 0;
  Bytes body;  // per run: u16 at, u16 length, bytes; ascending, none empty, none over another
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.offset, m.runs); }
  bool check() const;
  size_t end() const;  // of the last run, from `offset` on; 0: there is none
  template <class Each>
  void each_run(Each&& each) const {
    Reader in(body);
    for (uint32_t i = 0; i < runs; ++i) each(take_run(in));
  }
  static Run take_run(Reader& in) {
    Run r;
    r.at = in.get<uint16_t>();
    r.bytes = in.blob();
    return r;
  }
  static void put(Writer& out, const Run& r) {
    out.put(r.at);
    out.blob(r.bytes);
  }
};

struct SwapRequest {  // kSwap -> the bytes found
  static constexpr size_t kMost = 16;
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint64_t offset = 0;
  uint8_t size = 0;
  Bytes body;  // `size` bytes expected, as many desired
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.offset, m.size); }
  bool check() const { return size <= kMost && body.size() == 2 * size_t{size}; }
  Bytes expected() const { return body.first(size); }
  Bytes desired() const { return body.last(size); }
};

// ---- Replies ----
// A status comes first. The structs are what follows kOk, or another status where they say so.

struct Reply {
  WireStatus status = WireStatus::kMalformed;
  Bytes body;
};
// Nothing: the reply is empty.
inline std::optional<Reply> split_reply(Bytes bytes) {
  if (bytes.empty()) return std::nullopt;
  return Reply{static_cast<WireStatus>(bytes[0]), bytes.subspan(1)};
}

// A break as it ends a message about an extensible segment; of others nothing is there.
struct BreakPart {
  Break brk;
  static auto fields(auto& m) { return std::tie(m.brk.bytes, m.brk.round); }
  bool check() const { return legal_break(brk); }
};

struct OpenReply {
  uint64_t size = 0;
  int32_t flags = 0, attrib = 0;
  uint16_t lifeline_port = 0;
  uint64_t lifeline_secret = 0;
  Bytes body;  // BreakPart of an extensible segment
  static auto fields(auto& m) {
    return std::tie(m.size, m.flags, m.attrib, m.lifeline_port, m.lifeline_secret);
  }
  // What stands behind that is ignored.
  Bytes break_part() const { return body.first(std::min(body.size(), kWireSize<BreakPart>)); }
};

struct PresentTokenReply {
  uint64_t key = 0, base = 0;
  uint32_t rights = 0;
  uint16_t raw_key_size = 0;
  Bytes body;  // the provider's raw key; then BreakPart of an extensible segment
  static auto fields(auto& m) { return std::tie(m.key, m.base, m.rights, m.raw_key_size); }
  bool check() const { return body.size() >= raw_key_size; }
  Bytes raw_key() const { return body.first(raw_key_size); }
  Bytes behind_key() const { return body.subspan(raw_key_size); }
};

struct CasReply {  // with every status
  static constexpr bool kOpenEnded = true;
  uint64_t found = 0;
  static auto fields(auto& m) { return std::tie(m.found); }
};

}  // namespace cmi::memory
