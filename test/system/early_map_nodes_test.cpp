// In a process with one thread an absent page is mapped while its bytes travel (protocol.md, rule
// 3): what happens to the page meanwhile must not be missed.
#include <doctest/doctest.h>
#include <time.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "core/base/clock.hpp"
#include "support/passages.hpp"
#include "system/calls.hpp"

namespace cmi::test {

namespace {

const char* const kMapped = "mapped_before_delivery";

struct Scene {
  // `held_up`: the first page that is mapped waits for let_go() before it is delivered, and an
  // access may take long enough for that.
  explicit Scene(bool held_up, Env env = {}, const std::string& points = "")
      : home(cluster.spawn("home")),
        exported(export_segment(home)),
        counts(cluster.scratch() + "/passages"),
        goes_on(cluster.scratch() + "/goes-on") {
    if (held_up) {
      env.emplace_back("CMI_FAULT_POINT",
                       std::string(kMapped) + "#1=hold:" + goes_on + (";" + points));
    }
    env.emplace_back("CMI_FAULT_COUNT", counts);
    peer = &cluster.spawn("peer", env);
    if (held_up) {
      peer->run([] {
        cmi_ctl_cfg cfg{};
        cfg.ctl_cfg_rcfg_tout = 20'000;
        (void)CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_RECONF_TOUT, &cfg);
      });
    }
    import = import_segment(*peer, exported);
  }
  void let_go() const { std::ofstream(goes_on).put('x'); }
  uint64_t mapped_early() const {
    const Passages all = read_passages(counts);
    const auto it = all.find(kMapped);
    return it == all.end() ? 0 : it->second;
  }
  void wait_for_map() const {
    for (const Deadline end = Deadline::in(10 * kSecond); mapped_early() == 0;) {
      REQUIRE_MESSAGE(!end.passed(), "no page was mapped before it was delivered");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  Cluster cluster;
  Process& home;
  const Export exported;
  const std::string counts, goes_on;
  Process* peer = nullptr;
  Import import;
};

const auto kLoad = [](uint64_t at) { return load64(at).cause(); };

TEST_SUITE("early-map") {
  TEST_CASE("a_page_is_mapped_while_it_travels_where_nobody_else_can_come_to_it") {
    Scene s(false);
    REQUIRE(publish(s.home, s.exported.at + kPage, 5));
    CHECK(load(*s.peer, s.import.at + kPage).value == 5);
    CHECK(publish(*s.peer, s.import.at + 3 * kPage, 6));
    CHECK(load(s.home, s.exported.at + 3 * kPage).value == 6);
    CHECK(s.mapped_early() == 2);
    CHECK(load(*s.peer, s.import.at + kPage).value == 5);
    CHECK(publish(*s.peer, s.import.at + kPage + 8, 7));
    CHECK(load(s.home, s.exported.at + kPage + 8).value == 7);
    CHECK(s.mapped_early() == 2);
    // Another thread might come to it.
    s.peer->run(
        [] { std::thread([] { std::this_thread::sleep_for(std::chrono::hours(1)); }).detach(); });
    CHECK(load(*s.peer, s.import.at + 5 * kPage).cause() == Fault::kNone);
    CHECK(s.mapped_early() == 2);
  }

  TEST_CASE("no_page_is_mapped_before_it_is_there_where_the_kernel_cannot_protect_it_at_once") {
    Scene s(false, {{"CMI_KERNEL", "6.1"}});
    REQUIRE(publish(s.home, s.exported.at + kPage, 5));
    CHECK(load(*s.peer, s.import.at + kPage).value == 5);
    CHECK(s.mapped_early() == 0);
  }

  TEST_CASE("a_page_that_is_mapped_early_goes_with_a_token_that_is_revoked_meanwhile") {
    Scene s(true);
    auto pending = s.peer->start(kLoad, s.import.at);
    s.wait_for_map();
    REQUIRE(tok_del(s.home, s.exported.token).ok());
    s.let_go();
    CHECK(pending.get() == CMI_ERROR_TOKEN);
    CHECK(load(*s.peer, s.import.at).cause() == CMI_ERROR_TOKEN);
  }

  TEST_CASE("a_page_that_is_mapped_early_is_taken_back_when_its_home_dies_meanwhile") {
    Scene s(true);
    auto pending = s.peer->start(kLoad, s.import.at);
    s.wait_for_map();
    s.home.kill();
    s.let_go();
    // What had arrived may be read once, before it is known.
    const int first = pending.get();
    CHECK((first == Fault::kNone || first == CMI_ERROR_SINVAL));
    for (const Deadline end = Deadline::in(20 * kSecond); !end.passed();) {
      if (load(*s.peer, s.import.at).cause() == CMI_ERROR_SINVAL) break;
    }
    CHECK(load(*s.peer, s.import.at).cause() == CMI_ERROR_SINVAL);
  }

  TEST_CASE("a_store_to_a_page_that_is_mapped_early_and_invalidated_is_not_lost") {
    for (const int32_t flags : {CMI_SEG_CLIENT_INCONSIST, CMI_SEG_CLIENT_CONSIST}) {
      for (const bool broken : {false, true}) {
        CAPTURE(flags);
        CAPTURE(broken);
        Scene s(true, {}, broken ? "mutate_early_map_kept=fail" : "");
        const Export other = export_segment(s.home, 16 * kPage, kAllRights, flags);
        const Import import = import_segment(*s.peer, other);
        auto pending = s.peer->start([](uint64_t at) { return store64(at, 3).cause(); }, import.at);
        s.wait_for_map();
        CHECK(publish(s.home, other.at + 8, 4));
        s.let_go();
        CHECK(pending.get() == Fault::kNone);
        CHECK(wmb(*s.peer).ok());
        CHECK(load(s.home, other.at).value == (broken ? 0 : 3));
        CHECK(load(s.home, other.at + 8).value == 4);
        // A page that was kept goes with the next notice, whenever that comes.
        if (!broken) CHECK(load(*s.peer, import.at + 8).value == 4);
      }
    }
  }
}

}  // namespace

}  // namespace cmi::test
