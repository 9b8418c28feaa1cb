// The bytes of every message, pinned: what a struct becomes is compared with bytes that were
// written down from the tables of doc/design/wire.md without this library. And what every decoder
// refuses: each message cut off at each byte, with a byte too many, and with counts that its bytes
// do not bear out.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory/wire/bus_messages.hpp"
#include "core/memory/wire/dispatch.hpp"
#include "core/memory/wire/local_messages.hpp"
#include "core/memory/wire/notifications.hpp"
#include "core/memory/wire/replies.hpp"
#include "core/memory/wire/requests.hpp"

namespace cmi::test::wire_test {
using namespace cmi::memory;

namespace {

namespace golden {
inline constexpr std::string_view kOpen = "080706050403020114131211";
inline constexpr std::string_view kPresentToken =
    "08070605040302011413121128272625242322213837363534333231484746454443424158575655"
    "54535251";
inline constexpr std::string_view kLeave = "080706050403020114131211";
inline constexpr std::string_view kPublish =
    "080706050403020114131211020000000700000003010010000400aabbccdd090000000001001000"
    "0400aabbccdd6867666564636261";
inline constexpr std::string_view kAnnounce =
    "0807060504030201141312110200000001000000020000007473727101000000";
inline constexpr std::string_view kCas =
    "080706050403020114131211081000000000000028272625242322213837363534333231";
inline constexpr std::string_view kPublishSwap =
    "0807060504030201141312110810000000000000282726252423222138373635343332310200000007000000030100"
    "10"
    "000400aabbccdd0900000000010010000400aabbccdd";
inline constexpr std::string_view kSwapFetch =
    "0807060504030201141312110810000000000000282726252423222138373635343332310105020000000700000003"
    "0100"
    "10"
    "000400aabbccdd0900000000010010000400aabbccdd";
inline constexpr std::string_view kAcquireFetch = "080706050403020114131211070000000305000000";
inline constexpr std::string_view kCause = "080706050403020114131211";
inline constexpr std::string_view kAcquire = "080706050403020114131211030000000200000005000000";
inline constexpr std::string_view kDirtyIntent = "08070605040302011413121107000000030800000004";
inline constexpr std::string_view kAskFlux = "08070605040302011413121107000000";
inline constexpr std::string_view kFetchWithIntent = "0807060504030201141312110700000003";
inline constexpr std::string_view kEnterPages = "0807060504030201141312110700000002000000";
inline constexpr std::string_view kAskHolder = "0807060504030201141312112827262524232221";
inline constexpr std::string_view kAskHolderReply = "01";
inline constexpr std::string_view kLocalOffer = "080706050403020114131211";
inline constexpr std::string_view kLocalOfferReply =
    "0028272625242322213837363534333231050000002f72756e";
inline constexpr std::string_view kLocalOfferRefused = "030000000000000000000000000000000000000000";
inline constexpr std::string_view kLocalAsk =
    "2827262524232221383736353433323100100000007f00000020000000000000";
inline constexpr std::string_view kLocalGranted = "0100";
inline constexpr std::string_view kLocalNothing = "0002";
inline constexpr std::string_view kRingAsk = "282726252423222138373635343332314847464544434241";
inline constexpr std::string_view kSubscribe = "0807060504030201141312110700000004030201";
inline constexpr std::string_view kGoodbye = "";
inline constexpr std::string_view kReturned = "08070605040302011413121109000000";
inline constexpr std::string_view kAlive = "";
inline constexpr std::string_view kLoad = "080706050403020114131211031000000000000000100000";
inline constexpr std::string_view kStore =
    "0807060504030201141312110310000000000000020000000000020001020500010003";
inline constexpr std::string_view kSwap =
    "0807060504030201141312110810000000000000040102030405060708";
inline constexpr std::string_view kOpenReply =
    "000001000000000040000000feffffff34122827262524232221";
inline constexpr std::string_view kOpenReplyExtensible =
    "000001000000000040000000feffffff34122827262524232221008000000000000003000000";
inline constexpr std::string_view kOpenReplyQuiesced =
    "000001000000000040000000feffffff341228272625242322210900000001";
inline constexpr std::string_view kOpenReplyExtensibleQuiesced =
    "000001000000000040000000feffffff341228272625242322210080000000000000030000000900000001";
inline constexpr std::string_view kPresentReply =
    "282726252423222138373635343332310700000003000000040000000200feed";
inline constexpr std::string_view kPresentReplyExtensible =
    "282726252423222138373635343332310700000003000000040000000200feed008000000000000003000000";
inline constexpr std::string_view kCasReply = "2827262524232221";
inline constexpr std::string_view kPublishSwapReply = "062827262524232221";
inline constexpr std::string_view kSwapFetchReply = "06282726252423222101";
inline constexpr std::string_view kFeatures = "03000000";
inline constexpr std::string_view kCauseReply = "008000000000000003000000";
inline constexpr std::string_view kInvalidate =
    "08070605040302011413121102000100000002000000090000000100000007000000050000000600"
    "00000a00010010000400aabbccdd";
inline constexpr std::string_view kInFlux =
    "080706050403020114131211020001000000020000000900000001000000";
inline constexpr std::string_view kRevoke = "0807060504030201141312112827262524232221";
inline constexpr std::string_view kRemoved = "08070605040302011413121103";
inline constexpr std::string_view kQuiesce = "08070605040302011413121109000000";
inline constexpr std::string_view kBreak =
    "0807060504030201141312110080000000000000030000000040000000000000";
inline constexpr std::string_view kReleased =
    "08070605040302011413121104000000010000000500000002000000";
inline constexpr std::string_view kBusView =
    "01fdffffff282726252423222100100000007f00000000010000000000";
inline constexpr std::string_view kBusUnview =
    "02fdffffff282726252423222100100000007f00000000010000000000";
inline constexpr std::string_view kBusBarrier =
    "03fdffffff282726252423222100000000000000000000000000000000";
inline constexpr std::string_view kBusPublish =
    "04fdffffff282726252423222106000000000000000200000000000000";
inline constexpr std::string_view kBusStored =
    "05fdffffff2827262524232221020000000000000000000000000000000100000002000000090000"
    "0001000000";
inline constexpr std::string_view kBusLook =
    "06fdffffff282726252423222100000000000000000000000000000000";
inline constexpr std::string_view kBusInFlux =
    "07fdffffff28272625242322210c000000000000000000000000000000";
inline constexpr std::string_view kBusInFluxSeen =
    "08fdffffff28272625242322210c000000000000000000000000000000";
inline constexpr std::string_view kBusFile =
    "09fdffffff282726252423222100000000000000000000000000000000";
inline constexpr std::string_view kBusHolder =
    "0afdffffff282726252423222188776655440000000000000000000000";
inline constexpr std::string_view kBusQuiesce =
    "20fdffffff282726252423222101000000000000000000000000000000";
inline constexpr std::string_view kBusLost =
    "21fdffffff2827262524232221010000000000000003000000000000000900000001000000";
inline constexpr std::string_view kBusToken =
    "24fdffffff282726252423222100000000000000000000000000000000";
inline constexpr std::string_view kBusShrunk =
    "25fdffffff282726252423222100800000000000000000000000000000";
inline constexpr std::string_view kBusAnswer =
    "80fdffffff282726252423222100000000000000000000000000000000";
}  // namespace golden

constexpr uint64_t kUid = 0x0102030405060708;
constexpr uint32_t kInstance = 0x11121314;
constexpr uint64_t kWord = 0x2122232425262728, kOther = 0x3132333435363738;
constexpr int32_t kSegment = -3;

std::string hex(Bytes bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (std::byte b : bytes) {
    text += kDigits[static_cast<uint8_t>(b) >> 4];
    text += kDigits[static_cast<uint8_t>(b) & 15];
  }
  return text;
}

std::vector<std::byte> unhex(std::string_view text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

template <class Message>
std::string encoded(const Message& m) {
  std::vector<std::byte> buf(1 << 16);
  Writer out(buf);
  encode(m, out);
  REQUIRE(out.ok());
  return hex(out.done());
}

template <class Message>
bool decodes(Bytes bytes) {
  Message m;
  return decode(bytes, &m);
}

// Encodes to the pinned bytes; decodes from them to what encodes to them again; is refused when it
// ends at any earlier byte, and with one more byte where none may follow.
template <class Message>
void pin(const Message& m, std::string_view bytes) {
  CHECK(encoded(m) == bytes);
  const auto wire = unhex(bytes);
  Message back;
  REQUIRE(decode(wire, &back));
  CHECK(encoded(back) == bytes);
  for (size_t cut = 0; cut < wire.size(); ++cut) {
    CAPTURE(cut);
    CHECK_FALSE(decodes<Message>(Bytes(wire).first(cut)));
  }
  auto longer = wire;
  longer.push_back(std::byte{0});
  CHECK(decodes<Message>(longer) == OpenEnded<Message>);
}

// The same of one whose body may end anywhere as far as the decoder knows.
template <class Message>
void pin_open_body(const Message& m, std::string_view bytes) {
  CHECK(encoded(m) == bytes);
  const auto wire = unhex(bytes);
  Message back;
  REQUIRE(decode(wire, &back));
  CHECK(encoded(back) == bytes);
  for (size_t cut = 0; cut < wire.size(); ++cut) {
    CAPTURE(cut);
    CHECK(decodes<Message>(Bytes(wire).first(cut)) == (cut >= kWireSize<Message>));
  }
}

// With a number of items at `at` that is one more, one less, or as many as can be said.
template <class Message, class Count>
void refuses_other_counts(std::string_view bytes, size_t at) {
  const auto wire = unhex(bytes);
  Count count;
  std::memcpy(&count, wire.data() + at, sizeof count);
  for (const Count wrong : {static_cast<Count>(count + 1), static_cast<Count>(count - 1),
                            static_cast<Count>(~Count{0})}) {
    CAPTURE(wrong);
    auto lying = wire;
    std::memcpy(lying.data() + at, &wrong, sizeof wrong);
    CHECK_FALSE(decodes<Message>(lying));
  }
}

// The body of a message as its parts put it together.
template <class Put>
std::vector<std::byte> body(Put&& put) {
  std::vector<std::byte> buf(1 << 16);
  Writer out(buf);
  put(out);
  REQUIRE(out.ok());
  buf.resize(out.size());
  return buf;
}

void put_diff(Writer& out) {
  out.put<uint16_t>(1);
  out.put<uint16_t>(16);
  out.put<uint16_t>(4);
  out.bytes(unhex("aabbccdd"));
}

TEST_CASE("the bytes of requests of one length") {
  pin(OpenRequest{kUid, kInstance}, golden::kOpen);
  pin(PresentTokenRequest{kUid, kInstance, kWord, kOther, 0x4142434445464748, 0x5152535455565758},
      golden::kPresentToken);
  pin(LeaveRequest{kUid, kInstance}, golden::kLeave);
  pin(CasRequest{kUid, kInstance, 0x1008, kWord, kOther}, golden::kCas);
  pin(CauseRequest{kUid, kInstance}, golden::kCause);
  pin(AcquireRequest{kUid, kInstance, 3, 2, 5}, golden::kAcquire);
  pin(AskFluxRequest{kUid, kInstance, 7}, golden::kAskFlux);
  pin(FetchWithIntentRequest{kUid, kInstance, {7, 3}}, golden::kFetchWithIntent);
  pin(AcquireFetchRequest{kUid, kInstance, {7, 3}, 5}, golden::kAcquireFetch);
  pin(EnterPagesRequest{kUid, kInstance, 7, 2}, golden::kEnterPages);
  pin(AskHolderRequest{kUid, kInstance, kWord}, golden::kAskHolder);
  pin(LocalOfferRequest{kUid, kInstance}, golden::kLocalOffer);
  pin(SubscribeRequest{kUid, kInstance, 7, 0x01020304}, golden::kSubscribe);
  pin(GoodbyeRequest{}, golden::kGoodbye);
  pin(ReturnedRequest{kUid, kInstance, 9}, golden::kReturned);
  pin(AliveRequest{}, golden::kAlive);
  pin(LoadRequest{kUid, kInstance, 0x1003, 0x1000}, golden::kLoad);
}

TEST_CASE("the bytes of a publish request, page by page") {
  const auto pages = body([](Writer& out) {
    DirtyIntentList::put(out, {7, 3});
    put_diff(out);
    DirtyIntentList::put(out, {9, 0});
    put_diff(out);
    out.put<uint64_t>(0x6162636465666768);
  });
  const PublishRequest m{kUid, kInstance, 2, pages};
  pin_open_body(m, golden::kPublish);

  PublishedPages in(m);
  DirtyIntent page;
  REQUIRE(in.next(&page));
  CHECK(page.page == 7);
  CHECK(page.epoch == 3);
  CHECK(in.diff().bytes(10).size() == 10);
  REQUIRE(in.next(&page));
  CHECK(page.page == 9);
  CHECK(page.epoch == 0);
  CHECK(in.diff().bytes(10).size() == 10);
  uint64_t secret = 0;
  CHECK(in.end(&secret));
  CHECK(secret == 0x6162636465666768);
}

TEST_CASE("the bytes of a swap with the stores before it") {
  const auto pages = body([](Writer& out) {
    DirtyIntentList::put(out, {7, 3});
    put_diff(out);
    DirtyIntentList::put(out, {9, 0});
    put_diff(out);
  });
  const PublishSwapRequest m{kUid, kInstance, 0x1008, kWord, kOther, 2, pages};
  pin_open_body(m, golden::kPublishSwap);
  SwapFetchRequest fetch{kUid, kInstance, 0x1008, kWord, kOther, 1, 5, 2, pages};
  pin_open_body(fetch, golden::kSwapFetch);
  CHECK(fetch.check());
  fetch.page = 2;
  CHECK_FALSE(fetch.check());

  PublishedPages in(m.body);
  DirtyIntent page;
  for (const uint32_t index : {7u, 9u}) {
    REQUIRE(in.next(&page));
    CHECK(page.page == index);
    CHECK_FALSE(in.end());
    CHECK(in.diff().bytes(10).size() == 10);
  }
  CHECK(in.end());
  CHECK_FALSE(in.next(&page));
}

TEST_CASE("a publish request that ends too early, or too late, does not end") {
  const auto pages = body([](Writer& out) {
    DirtyIntentList::put(out, {7, 3});
    out.put<uint64_t>(1);
  });
  for (size_t length = 0; length <= pages.size() + 1; ++length) {
    CAPTURE(length);
    auto cut = pages;
    cut.resize(length);
    PublishRequest m;
    m.body = cut;
    PublishedPages in(m);
    DirtyIntent page;
    uint64_t secret = 0;
    CHECK(in.next(&page) == (length >= kDirtyIntentSize));
    CHECK(in.end(&secret) == (length == pages.size()));
  }
}

TEST_CASE("the bytes of an announcement, and counts that its ranges do not bear out") {
  const auto ranges = body([](Writer& out) {
    PageRangeList::put(out, {1, 2});
    PageRangeList::put(out, {0x71727374, 1});
  });
  const AnnounceRequest m{kUid, kInstance, 2, ranges};
  pin_open_body(m, golden::kAnnounce);
  REQUIRE(m.ranges().size() == 2);
  CHECK(m.ranges()[1].first == 0x71727374);
  CHECK(m.ranges()[0].count == 2);
  CHECK(m.exact());
  // What came whole counts, and no more than was said to come.
  for (size_t length = 0; length <= ranges.size(); ++length) {
    CAPTURE(length);
    const AnnounceRequest cut{kUid, kInstance, 2, Bytes(ranges).first(length)};
    CHECK(cut.ranges().size() == length / PageRangeList::kItem);
    CHECK(cut.exact() == (length == ranges.size()));
  }
  for (const uint32_t count : {uint32_t{0}, uint32_t{1}, uint32_t{3}, UINT32_MAX}) {
    CAPTURE(count);
    const AnnounceRequest lying{kUid, kInstance, count, ranges};
    CHECK(lying.ranges().size() == std::min<size_t>(count, 2));
    CHECK_FALSE(lying.exact());
  }
}

TEST_CASE("the bytes of a repair, and counts that its pages do not bear out") {
  std::vector<std::byte> old(kPageSize), next(kPageSize);
  for (size_t i = 0; i < kPageSize; ++i) {
    old[i] = static_cast<std::byte>(i * 7);
    next[i] = static_cast<std::byte>(i * 11 + 1);
  }
  const auto pages = body([&](Writer& out) { RepairRequest::put(out, {7, old, next}); });
  const RepairRequest m{kUid, kInstance, 1, pages};
  const std::string bytes = encoded(m);
  CHECK(bytes ==
        "08070605040302011413121101000000"
        "07000000" +
            hex(old) + hex(next));
  const auto wire = unhex(bytes);
  RepairRequest back;
  REQUIRE(decode(wire, &back));
  const RepairRequest::Page page = back.page(0);
  CHECK(page.page == 7);
  CHECK(hex(page.old) == hex(old));
  CHECK(hex(page.next) == hex(next));
  CHECK(back.exact());
  for (size_t length = 0; length <= pages.size(); ++length) {
    const RepairRequest cut{kUid, kInstance, 1, Bytes(pages).first(length)};
    const bool whole = length == pages.size();
    if (cut.whole_pages() != (whole ? 1 : 0) || cut.exact() != whole) FAIL_CHECK(length);
  }
  for (size_t cut = 0; cut < kWireSize<RepairRequest>; ++cut) {
    CHECK_FALSE(decodes<RepairRequest>(Bytes(wire).first(cut)));
  }
  for (const uint32_t count : {uint32_t{0}, uint32_t{2}, UINT32_MAX}) {
    CAPTURE(count);
    const RepairRequest lying{kUid, kInstance, count, pages};
    CHECK(lying.whole_pages() == std::min<size_t>(count, 1));
    CHECK_FALSE(lying.exact());
  }
}

TEST_CASE("the bytes of dirty intents, which end with a whole one") {
  const auto marks = body([](Writer& out) {
    DirtyIntentList::put(out, {7, 3});
    DirtyIntentList::put(out, {8, 4});
  });
  const DirtyIntentRequest m{kUid, kInstance, marks};
  CHECK(encoded(m) == golden::kDirtyIntent);
  const auto wire = unhex(golden::kDirtyIntent);
  for (size_t cut = 0; cut <= wire.size(); ++cut) {
    CAPTURE(cut);
    const bool whole = cut >= 12 && (cut - 12) % kDirtyIntentSize == 0;
    CHECK(decodes<DirtyIntentRequest>(Bytes(wire).first(cut)) == whole);
  }
  REQUIRE(m.intents().size() == 2);
  CHECK(m.intents()[1].page == 8);
  CHECK(m.intents()[1].epoch == 4);
}

TEST_CASE("the bytes of a store at home, all of whose runs are looked at before one is taken") {
  const auto first = unhex("0102"), second = unhex("03");
  const auto runs = body([&](Writer& out) {
    StoreRequest::put(out, {0, first});
    StoreRequest::put(out, {5, second});
  });
  const StoreRequest m{kUid, kInstance, 0x1003, 2, runs};
  pin(m, golden::kStore);
  CHECK(m.end() == 6);
  std::vector<std::string> seen;
  m.each_run(
      [&](const StoreRequest::Run& r) { seen.push_back(std::to_string(r.at) + hex(r.bytes)); });
  CHECK(seen == std::vector<std::string>{"00102", "503"});
  refuses_other_counts<StoreRequest, uint32_t>(golden::kStore, 20);

  const auto refused = [&](uint16_t at, size_t length, uint16_t then, size_t then_length) {
    const std::vector<std::byte> bytes(length), then_bytes(then_length);
    const auto both = body([&](Writer& out) {
      StoreRequest::put(out, {at, bytes});
      StoreRequest::put(out, {then, then_bytes});
    });
    return !StoreRequest{kUid, kInstance, 0, 2, both}.check();
  };
  CHECK_FALSE(refused(0, 4, 4, 4));
  CHECK(refused(0, 4, 3, 4));           // over each other
  CHECK(refused(4, 4, 0, 4));           // descending
  CHECK(refused(0, 0, 4, 4));           // empty
  CHECK_FALSE(refused(0, 1, 4095, 1));  // up to the most that one message takes
  CHECK(refused(0, 1, 4095, 2));
}

TEST_CASE("the bytes of a swap at home, of at most 16") {
  const auto words = unhex("0102030405060708");
  const SwapRequest m{kUid, kInstance, 0x1008, 4, words};
  pin(m, golden::kSwap);
  CHECK(hex(m.expected()) == "01020304");
  CHECK(hex(m.desired()) == "05060708");
  refuses_other_counts<SwapRequest, uint8_t>(golden::kSwap, 20);
  const std::vector<std::byte> wide(34);
  CHECK(SwapRequest{kUid, kInstance, 0, 16, Bytes(wide).first(32)}.check());
  CHECK_FALSE(SwapRequest{kUid, kInstance, 0, 17, wide}.check());
}

TEST_CASE("requests with values that no importer sends are refused") {
  CHECK_FALSE(OpenRequest{kUid, 0}.check());
  CHECK_FALSE(FetchWithIntentRequest{kUid, kInstance, {7, 0}}.check());
  CHECK_FALSE(SubscribeRequest{kUid, kInstance, 7, 0}.check());
  CHECK_FALSE(AcquireFetchRequest{kUid, kInstance, {7, 3}, 0}.check());
  CHECK(AcquireFetchRequest{kUid, kInstance, {7, 0}, 5}.check());
  CHECK_FALSE(LoadRequest{kUid, kInstance, 0, kMaxWriteThrough + 1}.check());
}

// What homes say behind the answer of before, which importers of before do not look at.
TEST_CASE("the answer to an open says whether the segment is quiesced, if anything") {
  for (const bool extensible : {false, true}) {
    CAPTURE(extensible);
    const auto wire =
        unhex(extensible ? golden::kOpenReplyExtensibleQuiesced : golden::kOpenReplyQuiesced);
    OpenReply reply;
    REQUIRE(decode(Bytes(wire), &reply));
    QuiescePart part;
    REQUIRE(decode(reply.quiesce_part(extensible), &part));
    CHECK(part.round == 9);
    CHECK(part.on == 1);
    const auto again = body([&](Writer& out) {
      if (extensible) encode(BreakPart{{0x8000, 3}}, out);
      encode(part, out);
    });
    OpenReply said{0x10000, 0x40, -2, 0x1234, kWord, again};
    CHECK(encoded(said) ==
          (extensible ? golden::kOpenReplyExtensibleQuiesced : golden::kOpenReplyQuiesced));
    BreakPart brk;
    CHECK(decode(reply.break_part(), &brk) == extensible);
    FeaturesPart features;
    CHECK_FALSE(decode(reply.features_part(extensible), &features));
    const auto newest = body([&](Writer& out) {
      if (extensible) encode(BreakPart{{0x8000, 3}}, out);
      encode(part, out);
      encode(FeaturesPart{FeaturesPart::kSwapFetch | FeaturesPart::kAcquireFetch}, out);
      out.put<uint8_t>(1);  // of a home that says more
    });
    said.body = newest;
    REQUIRE(decode(said.features_part(extensible), &features));
    CHECK(features.bits == (FeaturesPart::kSwapFetch | FeaturesPart::kAcquireFetch));
    REQUIRE(decode(said.quiesce_part(extensible), &part));
    CHECK(part.round == 9);
    const auto before = unhex(extensible ? golden::kOpenReplyExtensible : golden::kOpenReply);
    REQUIRE(decode(Bytes(before), &reply));
    CHECK_FALSE(decode(reply.quiesce_part(extensible), &part));
  }
  CHECK_FALSE(QuiescePart{1, 2}.check());
}

TEST_CASE("the bytes of replies") {
  const auto brk = body([](Writer& out) { encode(BreakPart{{0x8000, 3}}, out); });
  OpenReply opened{0x10000, 0x40, -2, 0x1234, kWord, {}};
  pin_open_body(opened, golden::kOpenReply);
  opened.body = brk;
  pin_open_body(opened, golden::kOpenReplyExtensible);

  const auto key = unhex("feed");
  auto key_and_break = key;
  key_and_break.insert(key_and_break.end(), brk.begin(), brk.end());
  PresentTokenReply granted{kWord, kOther, 7, 3, 4, 2, key};
  CHECK(encoded(granted) == golden::kPresentReply);
  granted.body = key_and_break;
  CHECK(encoded(granted) == golden::kPresentReplyExtensible);
  const auto wire = unhex(golden::kPresentReplyExtensible);
  for (size_t cut = 0; cut <= wire.size(); ++cut) {
    CAPTURE(cut);
    CHECK(decodes<PresentTokenReply>(Bytes(wire).first(cut)) ==
          (cut >= kWireSize<PresentTokenReply> + key.size()));
  }
  PresentTokenReply back;
  REQUIRE(decode(wire, &back));
  CHECK(hex(back.raw_key()) == "feed");
  CHECK(hex(back.behind_key()) == golden::kCauseReply);

  pin(CasReply{kWord}, golden::kCasReply);
  pin(AskHolderReply{1}, golden::kAskHolderReply);
  CHECK_FALSE(AskHolderReply{2}.check());
  pin(PublishSwapReply{static_cast<uint8_t>(WireStatus::kRange), kWord}, golden::kPublishSwapReply);
  const std::vector<std::byte> page(kPageSize), less(kPageSize - 1);
  pin_open_body(SwapFetchReply{static_cast<uint8_t>(WireStatus::kRange), kWord, 1, {}},
                golden::kSwapFetchReply);
  CHECK(SwapFetchReply{64, 0, 1, page}.check());
  CHECK_FALSE(SwapFetchReply{65, 0, 1, page}.check());
  CHECK_FALSE(SwapFetchReply{0, 0, 2, page}.check());
  CHECK_FALSE(SwapFetchReply{0, 0, 1, less}.check());
  CHECK(PublishSwapReply{64, 0}.check());
  CHECK_FALSE(PublishSwapReply{65, 0}.check());
  pin(FeaturesPart{FeaturesPart::kSwapFetch | FeaturesPart::kAcquireFetch}, golden::kFeatures);
  pin(BreakPart{{0x8000, 3}}, golden::kCauseReply);
  CHECK_FALSE(BreakPart{{0x8000, 0}}.check());
  CHECK_FALSE(BreakPart{{0x8001, 3}}.check());
}

TEST_CASE("the bytes by which pages and rings of one machine are passed") {
  const auto folder = unhex("2f72756e");
  pin_open_body(LocalOfferReply{0, kWord, kOther, 5, folder}, golden::kLocalOfferReply);
  pin_open_body(LocalOfferReply{3, 0, 0, 0, {}}, golden::kLocalOfferRefused);
  auto refusals = unhex(golden::kLocalOfferRefused);
  refusals[0] = static_cast<std::byte>(static_cast<int>(LocalRefusal::kLast) + 1);
  CHECK_FALSE(decodes<LocalOfferReply>(refusals));

  const auto views = unhex("00100000007f00000020000000000000");
  const LocalAsk ask{kWord, kOther, views};
  CHECK(encoded(ask) == golden::kLocalAsk);
  const auto wire = unhex(golden::kLocalAsk);
  for (size_t cut = 0; cut <= wire.size(); ++cut) {
    CAPTURE(cut);
    CHECK(decodes<LocalAsk>(Bytes(wire).first(cut)) == (cut >= 16 && cut % sizeof(uint64_t) == 0));
  }
  const std::vector<std::byte> too_many(16 + 8 * (LocalAsk::kMostViews + 1));
  CHECK(decodes<LocalAsk>(Bytes(too_many).first(too_many.size() - 8)));
  CHECK_FALSE(decodes<LocalAsk>(too_many));

  pin(LocalGranted{1, LocalGranted::kNothing}, golden::kLocalGranted);
  pin(LocalGranted{0, LocalGranted::kStranger}, golden::kLocalNothing);
  CHECK_FALSE(decodes<LocalGranted>(unhex("0200")));
  CHECK_FALSE(decodes<LocalGranted>(unhex("0003")));
  pin(RingAsk{kWord, kOther, 0x4142434445464748}, golden::kRingAsk);
}

TEST_CASE("a reply is a status and what follows it") {
  CHECK_FALSE(split_reply({}).has_value());
  const auto reply = unhex("0bfeed");
  REQUIRE(split_reply(reply).has_value());
  CHECK(split_reply(reply)->status == WireStatus::kBroken);
  CHECK(hex(split_reply(reply)->body) == "feed");
}

TEST_CASE("the bytes of notifications") {
  const auto ranges = body([](Writer& out) {
    PageRangeList::put(out, {1, 2});
    PageRangeList::put(out, {9, 1});
  });
  pin(InFluxNotification{kUid, kInstance, 2, ranges}, golden::kInFlux);
  refuses_other_counts<InFluxNotification, uint16_t>(golden::kInFlux, 12);
  pin(RevokeNotification{kUid, kInstance, kWord}, golden::kRevoke);
  pin(RemovedNotification{kUid, kInstance, kRemovedGone | kRemovedEnding}, golden::kRemoved);
  pin(QuiesceNotification{kUid, kInstance, 9}, golden::kQuiesce);
  pin(BreakNotification{kUid, kInstance, {0x8000, 3}, 0x4000}, golden::kBreak);
  CHECK_FALSE(BreakNotification{kUid, kInstance, {0x8000, 0}, 0x4000}.check());
  CHECK_FALSE(BreakNotification{kUid, kInstance, {0x8001, 3}, 0x4000}.check());
  CHECK_FALSE(BreakNotification{kUid, kInstance, {0x8000, 3}, 0x4001}.check());
  CHECK_FALSE(BreakNotification{kUid, kInstance, {0x8000, 3}, 0x9000}.check());
}

TEST_CASE("the bytes of an invalidation, with what comes for subscribers") {
  const auto diff = body(put_diff);
  const auto all = body([&](Writer& out) {
    PageRangeList::put(out, {1, 2});
    PageRangeList::put(out, {9, 1});
    InvalidateNotification::put(out, {7, 5, 6, diff});
  });
  const InvalidateNotification m{kUid, kInstance, 2, all};
  CHECK(encoded(m) == golden::kInvalidate);
  const auto wire = unhex(golden::kInvalidate);
  constexpr size_t kRangesEnd = 14 + 2 * PageRangeList::kItem;
  for (size_t cut = 0; cut <= wire.size(); ++cut) {
    CAPTURE(cut);
    CHECK(decodes<InvalidateNotification>(Bytes(wire).first(cut)) ==
          (cut == kRangesEnd || cut == wire.size()));
  }
  size_t updates = 0;
  PageUpdates in(m);
  for (InvalidateNotification::Update u; in.next(&u); ++updates) {
    CHECK(u.page == 7);
    CHECK(u.epoch == 5);
    CHECK(u.number == 6);
    CHECK(hex(u.diff) == hex(diff));
  }
  CHECK(in.end());
  CHECK(updates == 1);
  refuses_other_counts<InvalidateNotification, uint16_t>(golden::kInvalidate, 12);
  const std::vector<std::byte> many((kMaxRanges + 1) * PageRangeList::kItem);
  CHECK(InvalidateNotification{kUid, kInstance, kMaxRanges,
                               Bytes(many).first(kMaxRanges * PageRangeList::kItem)}
            .check());
  CHECK_FALSE(InvalidateNotification{kUid, kInstance, kMaxRanges + 1, many}.check());
  CHECK_FALSE(InFluxNotification{kUid, kInstance, kMaxRanges + 1, many}.check());
}

TEST_CASE("the bytes of an acknowledgement that releases regions") {
  const auto regions = body([](Writer& out) {
    ReleasedRegions::put(out, {4, 1});
    ReleasedRegions::put(out, {5, 2});
  });
  const ReleasedRegions m{kUid, kInstance, regions};
  pin_open_body(m, golden::kReleased);
  REQUIRE(m.size() == 2);
  CHECK(m.item(1).index == 5);
  CHECK(m.item(1).epoch == 2);
  // What is left of one that was cut off counts for nothing.
  const ReleasedRegions cut{kUid, kInstance, Bytes(regions).first(15)};
  CHECK(cut.size() == 1);
}

TEST_CASE("the bytes of the node's bus") {
  constexpr uint64_t kAddress = 0x7f0000001000;
  pin(BusView{kBusView, kSegment, kWord, kAddress, 0x10000}, golden::kBusView);
  pin(BusUnview{kBusUnview, kSegment, kWord, kAddress, 0x10000}, golden::kBusUnview);
  pin(BusBarrier{kBusBarrier, kSegment, kWord}, golden::kBusBarrier);
  pin(BusPublish{kBusPublish, kSegment, kWord, 6, 2}, golden::kBusPublish);
  pin(BusHolder{kBusHolder, kSegment, kWord, 0x4455667788}, golden::kBusHolder);
  pin(BusLook{kBusLook, kSegment, kWord}, golden::kBusLook);
  pin(BusInFlux{kBusInFlux, kSegment, kWord, 12}, golden::kBusInFlux);
  pin(BusInFluxSeen{kBusInFluxSeen, kSegment, kWord, 12}, golden::kBusInFluxSeen);
  pin(BusFile{kBusFile, kSegment, kWord}, golden::kBusFile);
  pin(BusQuiesce{node::kBusQuiesce, kSegment, kWord, 1}, golden::kBusQuiesce);
  pin(BusToken{kBusToken, kSegment, kWord}, golden::kBusToken);
  pin(BusShrunk{kBusShrunk, kSegment, kWord, 0x8000}, golden::kBusShrunk);
  pin(BusAnswer{kBusAnswer, kSegment, kWord}, golden::kBusAnswer);
  const auto two = body([](Writer& out) {
    PageRangeList::put(out, {1, 2});
    PageRangeList::put(out, {9, 1});
  });
  pin(BusStored{kBusStored, kSegment, kWord, 2, 0, two}, golden::kBusStored);
  refuses_other_counts<BusStored, uint64_t>(golden::kBusStored, 13);
  const auto one = body([](Writer& out) { PageRangeList::put(out, {9, 1}); });
  pin(BusLost{kBusLost, kSegment, kWord, 1, kLostLocal | kLostLast, one}, golden::kBusLost);
  refuses_other_counts<BusLost, uint64_t>(golden::kBusLost, 13);
}

TEST_CASE("a message is handled when its type is known and it is well formed, and only then") {
  struct Target {
    uint32_t instance = 0;
    int calls = 0;
    void on_open(int times, const OpenRequest& m) {
      calls += times;
      instance = m.instance;
    }
  };
  static constexpr auto kTable = [] {
    DispatchTable<3, Target, int> t;
    t.on<OpenRequest, &Target::on_open>(RequestType::kOpen);
    return t;
  }();
  Target target;
  const auto good = unhex(golden::kOpen);
  CHECK(kTable.dispatch(1, target, 2, Reader(good)) == Dispatched::kHandled);
  CHECK(target.calls == 2);
  CHECK(target.instance == kInstance);
  CHECK(kTable.dispatch(1, target, 2, Reader(Bytes(good).first(11))) == Dispatched::kMalformed);
  CHECK(kTable.dispatch(2, target, 2, Reader(good)) == Dispatched::kUnknown);
  CHECK(kTable.dispatch(3, target, 2, Reader(good)) == Dispatched::kUnknown);
  CHECK(kTable.dispatch(65535, target, 2, Reader(good)) == Dispatched::kUnknown);
  CHECK(target.calls == 2);
}

}  // namespace

}  // namespace cmi::test::wire_test
