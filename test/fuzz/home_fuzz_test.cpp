// What importers may send to a home, and what homes may tell an importer, as random bytes handed
// straight to the code that takes them apart: far more of them than go over a wire, and with a
// sanitizer watching. CMI_FUZZ_COUNT sets how many, CMI_TEST_SEED the seed.
#include <cmi.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "fuzz/contexts.hpp"
#include "fuzz/targets.hpp"
#include "node/node_support.hpp"

namespace cmi::test {

namespace {

using namespace cmi::memory;
using Buffer = std::vector<std::byte>;

constexpr size_t kSize = 16 * kPageSize;
constexpr std::byte kCanary{0x11};

struct Exported {
  int32_t id = 0;
  access::RsegInfo handle;
  access::TokenInfo token;
  std::byte* view = nullptr;

  Exported(Context& context, uint32_t rights, int32_t attributes = 0, int32_t flags = 0) {
    auto made = context.home->create(kSize, flags, 0);
    REQUIRE(made);
    id = *made;
    if (access::extensible(flags))
      REQUIRE(ok(context.home->breaks().set_break(id, kSize, 0, {kSecond, kSecond})));
    auto attached = context.home->views().attach(id, kSize, nullptr, false, Deadline::in(kSecond));
    REQUIRE(attached);
    view = static_cast<std::byte*>(*attached);
    auto rseg = context.home->exports().export_segment(id, flags, attributes);
    auto granted = context.home->exports().new_token(id, true, {}, rights, nullptr);
    REQUIRE(rseg);
    REQUIRE(granted);
    handle = *rseg;
    token = *granted;
    std::fill_n(view, kSize, kCanary);
  }
  bool untouched() const {
    return std::all_of(view, view + kSize, [](std::byte b) { return b == kCanary; });
  }
};

// Payloads that are nearly right: fields at the borders of what is allowed, then cut, or drawn out.
class Payloads {
 public:
  Payloads(Choices& choices, std::vector<uint64_t> uids)
      : choices_(choices), uids_(std::move(uids)) {}

  Bytes next() {
    Writer out(bytes_);
    out.put(choices_.one_in(20) ? choices_.any() : uids_[choices_.below(uids_.size())]);
    const uint64_t fields = choices_.below(12);
    for (uint64_t i = 0; i < fields && out.room() > 9000; ++i) field(out);
    size_t size = out.size();
    if (choices_.one_in(4)) size = choices_.below(size + 1);
    return Bytes(bytes_.data(), size);
  }

 private:
  void field(Writer& out) {
    switch (choices_.below(9)) {
      case 8:  // a page and its dirty intent
        out.put(static_cast<uint32_t>(word() % 20));
        return out.put(static_cast<uint8_t>(choices_.below(4)));
      case 0:
        return out.put(word());
      case 1:
      case 2:
      case 3:
        return out.put(static_cast<uint32_t>(word()));
      case 4: {  // a run of a diff: how many, where, how long, the bytes
        const auto length = static_cast<uint16_t>(word());
        out.put<uint16_t>(1);
        out.put(static_cast<uint16_t>(word()));
        out.put(length);
        for (uint32_t i = 0; i < length % 4200; ++i) out.put<uint8_t>(0xee);
        return;
      }
      case 5:
        return out.put(static_cast<uint16_t>(word()));
      case 6:
        for (uint64_t n = choices_.below(600); n > 0; --n) {
          out.put(static_cast<uint8_t>(choices_.below(256)));
        }
        return;
      default: {  // a page and what is to be there
        out.put(static_cast<uint32_t>(word()));
        for (size_t i = 0; i < 2 * kPageSize && out.room() > 600; ++i) {
          out.put(static_cast<uint8_t>(i < kPageSize ? 0x11 : 0xee));
        }
        return;
      }
    }
  }
  uint64_t word() {
    constexpr uint64_t kBorders[] = {0,    1,    2,    3,     7,         8,         15,
                                     16,   17,   4088, 4095,  4096,      4097,      65535,
                                     2048, 2049, 512,  kSize, kSize - 8, kSize - 7, ~uint64_t{0}};
    return choices_.one_in(4) ? choices_.any() : kBorders[choices_.below(std::size(kBorders))];
  }

  Choices& choices_;
  const std::vector<uint64_t> uids_;
  Buffer bytes_ = Buffer(fabric::kMaxPayload);
};

constexpr uint16_t kOpen = 1, kPresentToken = 2, kLeave = 3, kOpenWriteThrough = 64, kLoad = 65,
                   kStore = 66,
                   kPresentTokenWriteThrough = 68;  // and a swap before that

void present(Context& to, const fabric::ClientInfo& who, uint64_t number, const Exported& what,
             uint16_t how = kPresentToken) {
  std::byte bytes[64];
  Writer out(bytes);
  out.put(what.token.uid);
  out.put<uint32_t>(1);
  out.put(what.token.id);
  out.put(what.token.secret);
  out.put(who.node.hi);
  out.put(who.node.lo);
  to.on_request(who, number, how, Reader(out.done()));
}

void ask(Context& home, const fabric::ClientInfo& who, uint64_t number, uint16_t type,
         const Exported& what) {
  std::byte bytes[12];
  Writer out(bytes);
  out.put(what.handle.uid);
  out.put<uint32_t>(1);
  home.on_request(who, number, type, Reader(out.done()));
}

}  // namespace

bool play_requests(Choices& choices, uint64_t most) {
  NodeFolder folder;
  auto net = fabric::FakeNet::make({});
  Context context(*net, folder.config());
  const Exported closed(context, fabric::kRead | fabric::kWrite | fabric::kAtomic);
  const Exported readable(context, fabric::kRead);
  const Exported writable(context, fabric::kRead | fabric::kWrite | fabric::kAtomic);
  Payloads payloads(choices, {closed.handle.uid, readable.handle.uid, writable.handle.uid,
                              writable.handle.uid, writable.handle.uid});
  const fabric::ClientInfo honest{random_context_id(), {1, 2}}, liar{random_context_id(), {3, 4}};
  present(context, honest, 1, closed);
  uint64_t number = 1;
  for (uint64_t i = 0; i < most && !choices.over(); ++i) {
    if (i % 500 == 0) {  // a request to leave ends what it may do
      present(context, liar, ++number, readable);
      present(context, liar, ++number, writable);
    }
    const auto type =
        static_cast<uint16_t>(choices.one_in(50) ? choices.any() : 1 + choices.below(15));
    if (type != 2) {
      context.on_request(liar, ++number, type, Reader(payloads.next()));
    } else {
      // The token is right, and perhaps not the rest.
      Buffer bytes(44);
      Writer out(bytes);
      out.put(choices.one_in(2) ? closed.handle.uid : writable.handle.uid);
      out.put(static_cast<uint32_t>(choices.below(3)));
      out.put(writable.token.id);
      out.put(writable.token.secret);
      out.put(choices.any());
      out.put(choices.any());
      context.on_request(liar, ++number, type, Reader(bytes));
    }
    if (choices.one_in(3)) {
      context.on_ack(choices.one_in(9) ? honest.id : liar.id, choices.below(i + 2),
                     Reader(payloads.next()));
    }
    if (i % 1000 == 0) REQUIRE(readable.untouched());
  }
  CHECK(readable.untouched());
  CHECK(closed.untouched());
  return !writable.untouched();
}

bool play_accesses(Choices& choices, uint64_t most) {
  NodeFolder folder;
  auto net = fabric::FakeNet::make({});
  Context context(*net, folder.config());
  const Exported before(context, fabric::kRead);
  const Exported readable(context, fabric::kRead, access::kWriteThrough);
  const Exported writable(context, fabric::kRead | fabric::kWrite, access::kWriteThrough);
  const Exported behind(context, fabric::kRead);
  Payloads payloads(choices, {readable.handle.uid, writable.handle.uid});
  const fabric::ClientInfo liar{random_context_id(), {3, 4}};
  uint64_t number = 0;
  for (const Exported* e : {&readable, &writable}) {
    ask(context, liar, ++number, kOpenWriteThrough, *e);
    present(context, liar, ++number, *e, kPresentTokenWriteThrough);
  }
  const uint64_t borders[] = {0,         1,     63,        kPageSize - 1,  kPageSize, kSize - 8,
                              kSize - 1, kSize, kSize + 1, UINT64_MAX - 3, UINT64_MAX};
  for (uint64_t i = 0; i < most && !choices.over(); ++i) {
    const auto type = static_cast<uint16_t>(kLoad + choices.below(3));
    Buffer bytes(9000);
    Writer out(bytes);
    out.put(choices.one_in(2) ? readable.handle.uid : writable.handle.uid);
    out.put<uint32_t>(choices.one_in(20) ? 2 : 1);
    out.put(choices.one_in(3) ? choices.below(kSize) : borders[choices.below(std::size(borders))]);
    if (type == kLoad) {
      out.put(static_cast<uint32_t>(choices.one_in(9) ? choices.any() : choices.below(5000)));
    } else if (type == kStore) {
      const uint64_t runs = choices.below(5);
      out.put(static_cast<uint32_t>(choices.one_in(9) ? choices.any() : runs));
      for (uint64_t run = 0, at = 0; run < runs; ++run) {
        const uint64_t length = choices.below(700);
        out.put(static_cast<uint16_t>(choices.one_in(9) ? choices.any() : at));
        out.put(static_cast<uint16_t>(choices.one_in(9) ? choices.any() : length));
        for (uint64_t n = 0; n < length; ++n) out.put<uint8_t>(0xee);
        at += length + choices.below(300);
      }
    } else {
      const uint64_t size = uint64_t{1} << choices.below(6);
      out.put(static_cast<uint8_t>(choices.one_in(9) ? choices.any() : size));
      for (uint64_t n = 0; n < 2 * size; ++n) out.put(static_cast<uint8_t>(kCanary));
    }
    const size_t cut = choices.one_in(9) ? choices.below(out.size() + 1) : out.size();
    context.on_request(liar, ++number, type, Reader(Bytes(bytes.data(), cut)));
  }
  CHECK(readable.untouched());
  CHECK(before.untouched());
  CHECK(behind.untouched());
  return !writable.untouched();
}

void play_messages(Choices& choices, uint64_t most) {
  NodeFolder folder;
  auto net = fabric::FakeNet::make({});
  Context context(*net, folder.config());
  const Exported closed(context, fabric::kRead);
  Payloads payloads(choices, {closed.handle.uid});
  auto stranger = net->open();
  class Deaf final : public fabric::Receiver {
    void on_message(fabric::Endpoint&, Bytes) override {}
  } deaf;
  auto endpoint = stranger->open_endpoint(deaf);
  REQUIRE(endpoint);
  Buffer message(fabric::kMaxMessage);
  const uint64_t before = context.server->dropped();
  uint64_t sent = 0;
  for (uint64_t i = 0; i < most && !choices.over(); ++i) {
    // Heads that are right, with a kind and a secret that may be.
    const Bytes payload = payloads.next();
    Writer out(message);
    fabric::encode_frame_header({static_cast<fabric::FrameKind>(1 + choices.below(7)),
                                 static_cast<uint16_t>(choices.below(12)), choices.below(3),
                                 choices.below(9), choices.below(9), payload},
                                out);
    out.bytes(payload);
    size_t size = out.size();
    if (choices.one_in(4)) size = choices.below(size + 1);
    if (choices.one_in(3)) message[choices.below(std::max<size_t>(size, 1))] ^= std::byte{1};
    context.server->on_message(**endpoint, Bytes(message.data(), size));
    ++sent;
  }
  CHECK(context.server->dropped() == before + sent);
  CHECK(closed.untouched());
}

void play_notifications(Choices& choices, uint64_t most) {
  NodeFolder folder;
  auto net = fabric::FakeNet::make({});
  Context home(*net, folder.config("home")), peer(*net, folder.config("peer"));
  const Exported exported(home, fabric::kRead | fabric::kWrite | fabric::kAtomic, 0,
                          CMI_SEG_EXTENSIBLE);
  std::atomic<bool> over{false};
  std::thread serving([&] {
    while (!over.load()) home.server->poll();
  });
  const Deadline soon = Deadline::in(20 * kSecond);
  auto imported = peer.importer->joining().import(exported.handle, 1, true, {soon, soon});
  REQUIRE(imported);
  REQUIRE(ok(peer.importer->tokens().set(*imported, exported.token, soon)));
  REQUIRE(ok(peer.importer->views().prepare(**imported, false)));
  over.store(true);
  serving.join();
  Payloads payloads(choices, {exported.handle.uid});
  for (uint64_t i = 0; i < most && !choices.over(); ++i) {
    // A segment, which import of it, and the rest; of a kind that ends nothing, or of none.
    Buffer bytes(2048);
    Writer out(bytes);
    out.put(exported.handle.uid);
    out.put((*imported)->instance);
    const bool moves = choices.one_in(8);
    if (moves) {  // a break, and from where on what there is is of before
      out.put(choices.below(20) * kPageSize);
      out.put(static_cast<uint32_t>(choices.below(most)));
      out.put(choices.one_in(2) ? choices.below(20) * kPageSize : choices.below(kSize));
    } else {
      const Bytes more = payloads.next();
      out.bytes(more.subspan(0, std::min<size_t>(more.size(), 1800)));
    }
    auto type = static_cast<uint16_t>(choices.one_in(3)   ? 5 + choices.below(60000)
                                      : choices.one_in(2) ? 4
                                                          : 1);
    if (type == static_cast<uint16_t>(NotificationType::kGoodbye)) type = 1;
    if (moves) type = static_cast<uint16_t>(NotificationType::kBreak);
    peer.importer->notifications().on_notification(exported.handle.home, choices.any(), i, type,
                                                   Reader(out.done()));
  }
  CHECK((*imported)->grant.state() == ImportState::kUsable);
  CHECK((*imported)->brk.load() <= kSize / kPageSize);
}

namespace {

TEST_CASE("random_requests_do_nothing_that_the_token_does_not_allow") {
  const uint64_t seed = number_from("CMI_TEST_SEED", 1);
  CAPTURE(seed);
  Choices choices(seed);
  // The lies come as far as the memory.
  CHECK(play_requests(choices, fuzz_count(100'000)));
}

TEST_CASE("random_accesses_of_a_write_through_import_stay_within_its_token") {
  const uint64_t seed = number_from("CMI_TEST_SEED", 1);
  CAPTURE(seed);
  Choices choices(seed);
  // The lies come as far as the memory.
  CHECK(play_accesses(choices, fuzz_count(50'000)));
}

TEST_CASE("random_messages_to_a_listener_are_dropped") {
  const uint64_t seed = number_from("CMI_TEST_SEED", 2);
  CAPTURE(seed);
  Choices choices(seed);
  play_messages(choices, fuzz_count(200'000));
}

TEST_CASE("random_notifications_for_an_import_do_no_harm") {
  const uint64_t seed = number_from("CMI_TEST_SEED", 3);
  CAPTURE(seed);
  Choices choices(seed);
  play_notifications(choices, fuzz_count(100'000));
}

TEST_CASE("an_import_stays_cached_or_write_through_whatever_it_asks_for") {
  NodeFolder folder;
  auto net = fabric::FakeNet::make({});
  Context context(*net, folder.config());
  const Exported segment(context, fabric::kRead | fabric::kWrite, access::kWriteThrough);
  REQUIRE(context.home->exports().export_segment(segment.id, 0, 0));
  const fabric::ClientInfo liar{random_context_id(), {3, 4}};
  uint64_t number = 0;
  // Busy is a home whose stores somebody may have to be told of.
  ask(context, liar, ++number, kOpenWriteThrough, segment);
  present(context, liar, ++number, segment, kPresentTokenWriteThrough);
  ask(context, liar, ++number, kOpen, segment);
  present(context, liar, ++number, segment, kPresentToken);
  CHECK_FALSE(context.home->busy());
  ask(context, liar, ++number, kLeave, segment);
  CHECK_FALSE(context.home->busy());
  // Nor does one that was forgotten come back as something else.
  present(context, liar, ++number, segment, kPresentTokenWriteThrough);
  present(context, liar, ++number, segment, kPresentToken);
  CHECK_FALSE(context.home->busy());
  ask(context, liar, ++number, kLeave, segment);
  present(context, liar, ++number, segment, kPresentToken);
  CHECK(context.home->busy());
  ask(context, liar, ++number, kOpenWriteThrough, segment);
  ask(context, liar, ++number, kLeave, segment);
  CHECK_FALSE(context.home->busy());
}

}  // namespace

}  // namespace cmi::test
