// The keys that importers really use: each session has a registration of its own at home, beside
// that of its token. Copied while it is alive and used by an initiator that is bound by nothing
// (rogue/rogue.cpp), through an endpoint of its own, such a key opens nothing once the token is
// revoked or the break has moved down, though its importer is still there and has done as it was
// told.
#include <doctest/doctest.h>

#include <string>

#include "core/access/handles.hpp"
#include "fault/stale_writer.hpp"
#include "support/rogue.hpp"
#include "system/each_provider.hpp"

namespace cmi::test::session_key_test {

namespace {

constexpr uint64_t kSize = 16 * kPage, kOffset = 3 * kPage + 8, kBefore = 8;
constexpr uint64_t kSecret = 0x1122334455667788;
const std::string kGot = "got 8877665544332211\n";  // its bytes in memory

struct Scene {
  Scene(Cluster& cluster, const Env& env, bool broken, int32_t flags)
      : home(cluster.spawn("holder", with(env, broken))),
        peer(cluster.spawn_bare("peer", env)),
        exported(make(flags)),
        board(cluster),
        holding(hold()) {}

  static Env with(Env env, bool broken) {
    env.emplace_back("CMI_DEAD_AFTER", "20000");
    if (broken) env.emplace_back("CMI_FAULT_POINT", "mutate_session_key_kept=fail");
    return env;
  }
  Export make(int32_t flags) {
    const Answer made = seg_get(home, kSize, flags);
    REQUIRE(made.ok());
    if ((flags & CMI_SEG_EXTENSIBLE) != 0) REQUIRE(seg_brk(home, made.seg(), kSize).ok());
    return {made.seg(), seg_at(home, made.seg()).at(), kSize, seg_exp(home, made.seg()),
            tok_new(home, made.seg(), kAllRights)};
  }
  Pending<bool> hold() {
    REQUIRE(store(home, exported.at + kOffset, kSecret).cause() == Fault::kNone);
    REQUIRE(store(home, exported.at + kBefore, kSecret).cause() == Fault::kNone);
    HoldOrder order;
    order.handle = exported.handle;
    order.token = exported.token;
    order.board = board.name();
    auto pending = peer.start([](HoldOrder o) { return hold_key(o); }, order);
    REQUIRE(board.reaches(kHeld, 1));
    return pending;
  }
  RogueOutcome rogue(const char* what, uint64_t offset = kOffset) {
    const auto rseg = access::decode_rseg(exported.handle.bytes.data());
    REQUIRE(rseg);
    const auto& listener = rseg->listeners.at(0);
    return run_rogue(listener.provider, hexadecimal(listener.blob),
                     {board[kKey].load(), board[kKeyBase].load()}, offset, 8, what);
  }
  // It is there, and its connection has not been cut: the key is closed by itself.
  void end() {
    board[kMayLetGo] = 1;
    CHECK(holding.get());
  }

  Process &home, &peer;
  Export exported;
  Board board;
  Pending<bool> holding;
};

void revoke(Cluster& cluster, const Env& env, bool broken) {
  Scene scene(cluster, env, broken, 0);
  CHECK(scene.rogue("read").line == kGot);
  REQUIRE(tok_del(scene.home, scene.exported.token).ok());
  if (broken) {
    CHECK(scene.rogue("read").line == kGot);
    CHECK(scene.rogue("write").status == 0);
    CHECK(load(scene.home, scene.exported.at + kOffset).value != kSecret);
  } else {
    const RogueOutcome read = scene.rogue("read");
    CHECK(read.refused());
    CHECK(read.line != kGot);
    CHECK(scene.rogue("write").refused());
    CHECK(load(scene.home, scene.exported.at + kOffset).value == kSecret);
  }
  scene.end();
}

// A key of before opens nothing at all then, in front of the break either: whoever goes on presents
// its token again.
void shrink(Cluster& cluster, const Env& env, bool broken) {
  Scene scene(cluster, env, broken, CMI_SEG_EXTENSIBLE);
  CHECK(scene.rogue("read").line == kGot);
  REQUIRE(seg_brk(scene.home, scene.exported.seg, 2 * kPage).ok());
  if (broken) {
    CHECK(scene.rogue("read", kBefore).line == kGot);
    scene.end();
    return;
  }
  CHECK(scene.rogue("read").refused());
  CHECK(scene.rogue("write").refused());
  CHECK(scene.rogue("read", kBefore).refused());
  // What lies behind is other memory when the segment has grown again.
  REQUIRE(seg_brk(scene.home, scene.exported.seg, kSize).ok());
  CHECK(scene.rogue("write").refused());
  CHECK(load(scene.home, scene.exported.at + kOffset).value == 0);
  CHECK(load(scene.home, scene.exported.at + kBefore).value == kSecret);
  scene.end();
}

TEST_SUITE("fence") {
  TEST_CASE("a_session_key_opens_nothing_after_tok_del_though_its_importer_has_answered") {
    with_each_provider(
        [](Cluster& cluster, Process&, const Env& env) { revoke(cluster, env, false); });
  }
  TEST_CASE("a_session_key_opens_nothing_after_the_break_has_moved_down") {
    with_each_provider(
        [](Cluster& cluster, Process&, const Env& env) { shrink(cluster, env, false); });
  }
  // So that these prove something of closing the session's key.
  TEST_CASE("a_session_key_goes_on_opening_memory_when_its_revocation_keeps_it") {
    Cluster cluster;
    revoke(cluster, {}, true);
  }
  TEST_CASE("a_session_key_goes_on_opening_memory_when_the_break_keeps_it") {
    Cluster cluster;
    shrink(cluster, {}, true);
  }
}

}  // namespace

}  // namespace cmi::test::session_key_test
