// Breaks that come down while something is in the way: the node's registry is held by a process
// that is stopped, or an importer does not hear of it. What importers have dropped their stores for
// is done, and nothing of before counts after the next growth.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <string>

#include "core/base/clock.hpp"
#include "system/calls.hpp"
#include "system/happenings.hpp"
#include "system/stopped.hpp"

namespace cmi::test::shrinking_nodes_test {

namespace {

constexpr size_t kMost = 16 * kPage;

// Bytes of memory behind the file of a segment.
uint64_t memory_of(const Cluster& cluster, cmi_seg seg) {
  for (const std::string& path : cluster.files()) {
    struct stat st {};
    if (!path.ends_with("/seg-" + std::to_string(seg)) || ::stat(path.c_str(), &st) != 0) continue;
    return static_cast<uint64_t>(st.st_blocks) * 512;
  }
  return UINT64_MAX;
}

bool load_until_cause(Process& process, uint64_t at, int cause) {
  const Deadline deadline = Deadline::in(20 * kSecond);
  while (load(process, at).cause() != cause) {
    if (deadline.passed()) return false;
  }
  return true;
}

uint64_t memory_left(Process& process) { return ctl_info(process).info.max_mem_avail; }

// A process of the home's node that stops, when it is told to, while it has the registry.
struct Scene {
  explicit Scene(const Env& env) : home(cluster.spawn("home", env)) {}
  Cluster cluster;
  Process& home;
  Process& beside = cluster.spawn("home", {{"CMI_FAULT_POINT", "node.create.claimed=stop"}});
  Process& peer = cluster.spawn("peer");
  const Export exported = export_segment(home, kMost, kAllRights, CMI_SEG_EXTENSIBLE);
  const Import import = import_segment(peer, exported);

  Pending<cmi_seg> hold_registry() {
    auto making = beside.start([] { return CMIFN(ctxt(), 10, seg_get)(ctxt(), kPage, 0); });
    REQUIRE(await_stopped(beside));
    return making;
  }
  void go_on(Pending<cmi_seg>& making) {
    beside.signal(SIGCONT);
    CHECK(making.get() > 0);
  }
};

TEST_SUITE("shrinking") {
  TEST_CASE("who_asks_for_a_segment_while_the_registry_is_held_is_told_to_try_later") {
    Scene s({});
    Process& third = s.cluster.spawn("home");
    auto making = s.hold_registry();
    const auto error_of_break = [](cmi_seg seg) {
      cmi_ds ds{};
      ds.brk.seg_brksz = kPage;
      const int result = CMIFN(ctxt(), 10, seg_ctl)(ctxt(), seg, CMI_SEG_BRK, &ds);
      return answer(result, result != 0);
    };
    const auto error_of_info = [](cmi_seg seg) {
      cmi_ds ds{};
      const int result = CMIFN(ctxt(), 10, seg_ctl)(ctxt(), seg, CMI_SEG_INFO, &ds);
      return answer(result, result != 0);
    };
    auto shrinking = s.home.start(error_of_break, s.exported.seg);
    auto asking = third.start(error_of_info, s.exported.seg);
    CHECK(shrinking.get().failed(CMI_ERR_RECONFIG));
    CHECK(asking.get().failed(CMI_ERR_RECONFIG));
    CHECK(seg_rm(s.home, s.exported.seg).failed(CMI_ERR_RECONFIG));
    s.go_on(making);
    CHECK(s.home.run(error_of_break, s.exported.seg).ok());
    CHECK(third.run(error_of_info, s.exported.seg).ok());
    // Nothing was done of the removal that failed, so all of it is left to do.
    REQUIRE(load(s.peer, s.import.at).cause() == Fault::kNone);
    CHECK(seg_rm(s.home, s.exported.seg).ok());
    CHECK(load(s.peer, s.import.at).cause() == CMI_ERROR_TOKEN);
  }

  TEST_CASE("a_shrinking_that_importers_have_heard_of_is_made_whoever_has_the_registry") {
    Scene s(Env{{"CMI_FAULT_POINT", "break_notified#2=delay:3000000"}});
    REQUIRE(seg_brk(s.home, s.exported.seg, 4 * kPage).ok());
    const uint64_t left = memory_left(s.home);
    REQUIRE(publish(s.peer, s.import.at + 3 * kPage, 4));
    const Answer view = seg_at(s.beside, s.exported.seg);
    REQUIRE(view.ok());
    auto shrinking = s.home.start(
        [](cmi_seg seg) {
          cmi_ds ds{};
          ds.brk.seg_brksz = kPage;
          return CMIFN(ctxt(), 10, seg_ctl)(ctxt(), seg, CMI_SEG_BRK, &ds);
        },
        s.exported.seg);
    // The file still has its length, and no swap is made where it is to be cut.
    CHECK(load_until_cause(s.peer, s.import.at + 3 * kPage, CMI_ERROR_SEG_BRK));
    CHECK(atm_cas(s.beside, view.at() + 3 * kPage, 4, 5).fault.cause() == CMI_ERROR_SEG_BRK);
    auto making = s.hold_registry();
    CHECK(shrinking.get() == 0);
    CHECK(memory_of(s.cluster, s.exported.seg) == kPage);
    CHECK(load(s.peer, s.import.at + 3 * kPage).cause() == CMI_ERROR_SEG_BRK);
    s.go_on(making);
    // What it gave up counts no more, once the registry can be had; a page is the other's.
    CHECK(s.home.run(
        [](uint64_t bytes) {
          for (const Deadline deadline = Deadline::in(20 * kSecond); !deadline.passed();) {
            cmi_ctl_cfg cfg{};
            if (CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_INFO, &cfg) != 0) return false;
            if (cfg.info.max_mem_avail == bytes) return true;
          }
          return false;
        },
        left + 3 * kPage - kPage));
    REQUIRE(seg_brk(s.home, s.exported.seg, 4 * kPage).ok());
    CHECK(load(s.peer, s.import.at + 3 * kPage).value == 0);
  }

  // Attaching, importing and resizing are independent of each other, as the specification has it.
  TEST_CASE("the_break_moves_while_segments_are_attached_and_imported_and_quiesces_nobody") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& beside = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Process& comer = cluster.spawn("comer");
    const Export exported = export_segment(home, kMost, kAllRights, CMI_SEG_EXTENSIBLE);
    const Import import = import_segment(peer, exported);
    struct Views {
      uint64_t made, failed;
    };
    constexpr auto attaching = [](cmi_seg seg) {
      Views views{0, 0};
      while (!called_back() || views.made + views.failed == 0) {
        void* at = CMIFN(ctxt(), 10, seg_at)(ctxt(), seg, nullptr, 0);
        const bool there = at != nullptr && CMIFN(ctxt(), 10, seg_dt)(ctxt(), seg, at) == 0;
        ++(there ? views.made : views.failed);
      }
      return views;
    };
    auto here = beside.start(attaching, exported.seg);
    auto there = peer.start(attaching, import.seg);
    for (int i = 0; i < 20; ++i) {
      REQUIRE(seg_brk(home, exported.seg, 8 * kPage).ok());
      const Answer imported = seg_imp(comer, exported.handle);
      REQUIRE(imported.ok());
      REQUIRE(seg_brk(home, exported.seg, kPage).ok());
      REQUIRE(seg_rm(comer, imported.seg()).ok());
    }
    CHECK(here.finish().failed == 0);
    CHECK(there.finish().failed == 0);
    for (Process* process : {&home, &beside, &peer, &comer}) CHECK(types_waiting(*process) == "");
  }

  // It is busy with a notification for longer than anybody waits for it, and nothing declares it
  // dead.
  TEST_CASE("who_has_not_heard_of_a_break_marks_no_page_and_asks_for_its_key_at_leisure") {
    const Env never = {{"CMI_DEAD_AFTER", "3600000"}};
    Env home_env = never, slow_env = never;
    home_env.emplace_back("CMI_FAULT_POINT", "present_before_reply#130=kill");
    slow_env.emplace_back("CMI_FAULT_POINT", "invalidate_before_zap#1=delay:60000000");
    Cluster cluster;
    Process& home = cluster.spawn("home", home_env);
    Process& slow = cluster.spawn("slow", slow_env);
    Process& other = cluster.spawn("other");
    const Export exported = export_segment(home, kMost, kAllRights, CMI_SEG_EXTENSIBLE);
    REQUIRE(seg_brk(home, exported.seg, 8 * kPage).ok());
    const Import import = import_segment(slow, exported);
    const Import others = import_segment(other, exported);
    slow.run([] {
      cmi_ctl_cfg cfg{};
      cfg.ctl_cfg_rcfg_tout = 1000;
      (void)CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_RECONF_TOUT, &cfg);
    });
    REQUIRE(load(slow, import.at).value == 0);
    REQUIRE(load(slow, import.at + 3 * kPage).value == 0);
    REQUIRE(load(other, others.at).value == 0);
    REQUIRE(store(home, exported.at, 1).cause() == Fault::kNone);
    // When others have been told of it, what slow is told from then on comes behind that.
    REQUIRE(load_until(other, others.at, 1) == 1);
    REQUIRE(seg_brk(home, exported.seg, 2 * kPage).failed(CMI_ERR_RECONFIG));
    REQUIRE(seg_brk(home, exported.seg, 8 * kPage).ok());
    CHECK(store(slow, import.at + 3 * kPage, 1).cause() == CMI_ERROR_TRANSIENT);
    // It asks a hundred times a second at most, and the home, which counts, lives.
    CHECK(load(slow, import.at + 5 * kPage).cause() == CMI_ERROR_TRANSIENT);
    slow.kill();
    CHECK(await_happening(home).type == CMI_EVENT_RCTXT_DOWN);
    CHECK(load(home, exported.at + 3 * kPage).cause() == Fault::kNone);
  }
}

}  // namespace

}  // namespace cmi::test::shrinking_nodes_test
