// What an importer asks of a home: one struct for each request; replies.hpp has the answers.
// doc/design/wire.md shows them as tables, message.hpp how they become bytes. Segments are named by
// uid, imports by (client context, instance).
#pragma once

#include <algorithm>

#include "core/memory/wire/message.hpp"
#include "core/memory/wire/message_parts.hpp"
#include "core/memory/wire/wire.hpp"

namespace cmi::memory {

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
  explicit PublishedPages(const PublishRequest& m) : PublishedPages(m.body) {}
  explicit PublishedPages(Bytes body) : in_(body) {}
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
  [[nodiscard]] bool end() const { return in_.done(); }  // where there is no secret

 private:
  Reader in_;
};

// kAnnounce: the data went by itself. As of a publish request, what came whole counts, though its
// message ends in the middle of the next one.
struct AnnounceRequest {
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint32_t count = 0;
  Bytes body;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.count); }
  // Those that came whole, `count` at most.
  PageRangeList ranges() const {
    const size_t whole = std::min<size_t>(count, body.size() / PageRangeList::kItem);
    return PageRangeList(body.first(whole * PageRangeList::kItem));
  }
  bool exact() const { return body.size() == uint64_t{count} * PageRangeList::kItem; }
};

// kRepair. Here, too, what came whole counts.
struct RepairRequest {
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
  size_t whole_pages() const { return std::min<size_t>(pages, body.size() / kItem); }
  bool exact() const { return body.size() == uint64_t{pages} * kItem; }
  Page page(size_t i) const {  // below whole_pages()
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

struct PublishSwapRequest {  // kPublishSwap -> PublishSwapReply
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint64_t offset = 0, expected = 0, desired = 0;
  uint32_t pages = 0;
  Bytes body;  // PublishedPages, without a secret
  static auto fields(auto& m) {
    return std::tie(m.uid, m.instance, m.offset, m.expected, m.desired, m.pages);
  }
};

// kSwapFetch -> SwapFetchReply. A swap, alone or behind what its caller has to publish, whose
// answer brings what an access to the word's page needs next.
struct SwapFetchRequest {
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint64_t offset = 0, expected = 0, desired = 0;
  uint8_t page = 0;   // 1: it is wanted
  uint8_t epoch = 0;  // of its dirty intent; 0: none is wanted
  uint32_t pages = 0;
  Bytes body;  // PublishedPages, without a secret
  static auto fields(auto& m) {
    return std::tie(m.uid, m.instance, m.offset, m.expected, m.desired, m.page, m.epoch, m.pages);
  }
  bool check() const { return page <= 1; }
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
  DirtyIntentList intents() const { return DirtyIntentList(body); }
};

struct AskFluxRequest {  // kAskFlux
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint32_t page = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.page); }
};

struct FetchWithIntentRequest {  // kFetchWithIntent -> the page
  uint64_t uid = 0;
  uint32_t instance = 0;
  DirtyIntent intent;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.intent.page, m.intent.epoch); }
  bool check() const { return intent.epoch != 0; }
};

struct AcquireFetchRequest {  // kAcquireFetch -> the page
  uint64_t uid = 0;
  uint32_t instance = 0;
  DirtyIntent intent;  // epoch 0: none is wanted
  uint32_t region_epoch = 0;
  static auto fields(auto& m) {
    return std::tie(m.uid, m.instance, m.intent.page, m.intent.epoch, m.region_epoch);
  }
  bool check() const { return region_epoch != 0; }
};

struct EnterPagesRequest {  // kEnterPages -> the page, where it is one
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint32_t first = 0, count = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.first, m.count); }
  bool check() const { return count != 0; }
};

struct AskHolderRequest {  // kAskHolder -> AskHolderReply
  uint64_t uid = 0;
  uint32_t instance = 0;
  uint64_t holder = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance, m.holder); }
};

struct LocalOfferRequest {  // kLocalOffer -> LocalOfferReply
  uint64_t uid = 0;
  uint32_t instance = 0;
  static auto fields(auto& m) { return std::tie(m.uid, m.instance); }
  bool check() const { return instance != 0; }
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

}  // namespace cmi::memory
