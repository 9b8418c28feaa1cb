// An importer that does not hear of a break in time: what it has of before must go, whatever it
// hears of first.
#include <cmi.h>
#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "core/base/clock.hpp"
#include "fuzz/contexts.hpp"
#include "node/node_support.hpp"

namespace cmi::test::break_test {

namespace {

constexpr size_t kMost = 16 * kPageSize;
constexpr uint32_t kPages = 8;  // of them at first

// Does not hear of breaks until it has come to the one with this number.
class HardOfHearing final : public Context {
 public:
  using Context::Context;
  void on_notification(const ContextId& from, uint64_t secret, uint64_t number, uint16_t type,
                       Reader payload, const fabric::DirectAck& direct_ack) override {
    Reader in = payload;
    in.get<uint64_t>();
    in.get<uint32_t>();
    in.get<uint64_t>();
    const bool moves = type == static_cast<uint16_t>(NotificationType::kBreak);
    if (moves && in.get<uint32_t>() < hears_from.load()) return;
    Context::on_notification(from, secret, number, type, payload, direct_ack);
  }
  std::atomic<uint32_t> hears_from{0};
};

TEST_CASE("an_importer_that_missed_a_break_drops_what_is_of_before") {
  NodeFolder folder;
  auto net = fabric::FakeNet::make({});
  Context home(*net, folder.config("home"));
  HardOfHearing peer(*net, folder.config("peer"));
  const auto made = home.home->create(kMost, CMI_SEG_EXTENSIBLE, 0);
  REQUIRE(made);
  const auto attached =
      home.home->views().attach(*made, kMost, nullptr, false, Deadline::in(kSecond));
  REQUIRE(attached);
  auto* const at_home = static_cast<std::byte*>(*attached);
  const auto handle = home.home->exports().export_segment(*made, CMI_SEG_EXTENSIBLE, 0);
  const auto token = home.home->exports().new_token(
      *made, true, {}, fabric::kRead | fabric::kWrite | fabric::kAtomic, nullptr);
  REQUIRE(handle);
  REQUIRE(token);
  const auto set_break = [&](size_t pages, Nanos patience) {
    return home.home->breaks().set_break(*made, pages * kPageSize, 0, {patience, patience});
  };
  REQUIRE(ok(set_break(kPages, 20 * kSecond)));  // its second break
  std::memset(at_home, 7, kPages * kPageSize);

  const std::jthread serving = service_threads_of(home, peer);
  const Deadline soon = Deadline::in(20 * kSecond);
  auto imported = peer.importer->joining().import(*handle, 1, false, {soon, soon});
  REQUIRE(imported);
  Import& imp = **imported;
  REQUIRE(ok(peer.importer->tokens().set(*imported, *token, soon)));
  REQUIRE(ok(peer.importer->views().prepare(imp, false)));
  auto view = peer.importer->views().attach(*imported, nullptr, false);
  REQUIRE(view);
  const auto access = [&](uint32_t page, bool write) {
    return peer.importer->faults().serve(**view, (*view)->addr + size_t{page} * kPageSize, write,
                                         nullptr, Deadline::in(5 * kSecond));
  };
  for (uint32_t page = 0; page < kPages; ++page) {
    REQUIRE(access(page, page % 2 != 0) == Exception::kNone);
    REQUIRE(imp.page_data(page)[5] == std::byte{7});
    if (page % 2 != 0) imp.page_data(page)[9] = std::byte{9};  // stored, and not published
  }

  peer.hears_from.store(4);
  REQUIRE(set_break(2, 20 * kMilli) == Status::kReconfig);
  REQUIRE(set_break(2, 20 * kMilli) == Status::kReconfig);  // the same again waits for the rest
  bool asks = false;
  SUBCASE("and hears of the next") {}
  SUBCASE("and asks itself") { asks = true; }
  if (asks) peer.hears_from.store(5);
  REQUIRE(ok(set_break(12, asks ? 20 * kMilli : 20 * kSecond)));
  if (asks) {
    // The key has gone with the break; there is none before what the home has said is heard.
    CHECK(imp.brk.load() == kPages);
    // Of before are pages that lie before the new break: nothing of them comes home.
    LossMark mark;
    CHECK(ok(peer.importer->publishing().barrier(mark, {soon})));
    for (uint32_t page = 1; page < kPages; ++page) {
      CAPTURE(page);
      CHECK(at_home[page * kPageSize + 9] == std::byte(page == 1 ? 9 : 0));
    }
    peer.hears_from.store(4);
  }
  CHECK(access(11, false) == Exception::kNone);
  CHECK(imp.brk.load() == 12);
  for (uint32_t page = 0; page < 12; ++page) {
    CAPTURE(page);
    REQUIRE(access(page, false) == Exception::kNone);
    CHECK(imp.page_data(page)[5] == std::byte(page < 2 ? 7 : 0));
    CHECK(imp.page_data(page)[9] == std::byte(page == 1 ? 9 : page == 0 ? 7 : 0));
  }
  // Nor does what it stored come home.
  LossMark mark;
  CHECK(ok(peer.importer->publishing().barrier(mark, {soon})));
  for (uint32_t page = 0; page < 12; ++page) {
    CAPTURE(page);
    CHECK(at_home[page * kPageSize + 5] == std::byte(page < 2 ? 7 : 0));
    CHECK(at_home[page * kPageSize + 9] == std::byte(page == 1 ? 9 : page == 0 ? 7 : 0));
  }
  peer.importer->views().detach(*view, soon);
}

}  // namespace

}  // namespace cmi::test::break_test
