// Quiescing a segment, asked for over the node's bus as an administrator's tool does it.
#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>

#include <string>
#include <vector>

#include "core/node/quiesce.hpp"
#include "system/calls.hpp"
#include "system/cmiadm.hpp"
#include "system/happenings.hpp"

namespace cmi::test::quiesce_nodes_test {

namespace {

struct Folder {
  char path[256] = {};
  char node[64] = {};
};

Folder folder_of(const Cluster& cluster, const std::string& node) {
  Folder f;
  cluster.runtime_folder().copy(f.path, sizeof f.path - 1);
  node.copy(f.node, sizeof f.node - 1);
  return f;
}

// In a process without a context: a member of the node that only asks.
Pending<cmi::Status> start_asking(Process& tool, const Folder& folder, cmi_seg seg, bool on,
                                  int seconds = 20) {
  return tool.start(
      [](Folder f, cmi_seg segment, bool quiesce, int patience) {
        auto node = node::Node::join({f.path, f.node, 0}, random_context_id());
        if (!node) return node.status();
        return node::ask_quiesce(**node, segment, quiesce, Deadline::in(patience * kSecond));
      },
      folder, seg, on, seconds);
}

cmi::Status ask(Process& tool, const Folder& folder, cmi_seg seg, bool on, int seconds = 20) {
  return start_asking(tool, folder, seg, on, seconds).get();
}

bool is(const Happening& h, cmi_event_type type, cmi_seg seg) {
  return h.type == type && h.seg == seg;
}

uint32_t quiesced(Process& process, cmi_seg seg) {
  return seg_status(process, seg).status.st_flags & CMI_SEG_ST_QUIESCED;
}

// Waits for an event and keeps it.
uint64_t take(Process& process) {
  return process.run([] {
    pollfd p{cmi_ofi_evt_fd(ctxt()), POLLIN, 0};
    if (::poll(&p, 1, 20000) != 1) return uint64_t{0};
    return reinterpret_cast<uint64_t>(CMIFN(ctxt(), 10, evt_get)(ctxt()));
  });
}
void give_back(Process& process, uint64_t event, cmi_event_ret status = CMI_EVENT_RET_DONE) {
  process.run(
      [](uint64_t e, cmi_event_ret how) {
        CMIFN(ctxt(), 10, evt_ret)(reinterpret_cast<cmi_event*>(e), how);
      },
      event, status);
}

struct Scene {
  Cluster cluster;
  Process& home = cluster.spawn("home");
  Process& beside = cluster.spawn("home");
  Process& peer = cluster.spawn("peer");
  Process& near_peer = cluster.spawn("peer");
  Process& tool = cluster.spawn_bare("home");
  const Folder folder = folder_of(cluster, "home");
  const Export exported = export_segment(home);
  const Export other = export_segment(home);
  const Import import = import_segment(peer, exported);
  const Import aside = import_segment(peer, other);
};

TEST_SUITE("quiesce") {
  TEST_CASE_FIXTURE(Scene, "quiesce_is_told_at_home_and_at_importers_and_lasts_until_resume") {
    auto asked = start_asking(tool, folder, exported.seg, true);
    // The event at home, kept for a while: the asker waits for it, and nobody else does.
    const Happening at_peer = await_happening(peer);
    CHECK(is(at_peer, CMI_EVENT_QUIESCE, import.seg));
    const Happening at_home = await_happening(home);
    CHECK(is(at_home, CMI_EVENT_QUIESCE, exported.seg));
    CHECK(asked.get() == cmi::Status::kOk);
    for (Process* p : {&home, &beside}) {
      CHECK(seg_at(*p, exported.seg).failed(CMI_ERR_RECONFIG));
      CHECK(quiesced(*p, exported.seg) != 0);
      CHECK(seg_at(*p, other.seg).ok());
      CHECK(quiesced(*p, other.seg) == 0);
    }
    for (Process* p : {&peer, &near_peer}) {
      CHECK(seg_at(*p, import.seg).failed(CMI_ERR_RECONFIG));
      CHECK(quiesced(*p, import.seg) != 0);
      CHECK(quiesced(*p, aside.seg) == 0);
    }
    CHECK(ask(tool, folder, exported.seg, false) == cmi::Status::kOk);
    CHECK(is(await_happening(home), CMI_EVENT_RESUME, exported.seg));
    CHECK(is(await_happening(peer), CMI_EVENT_RESUME, import.seg));
    CHECK(seg_at(beside, exported.seg).ok());
    CHECK(seg_at(peer, import.seg).ok());
    CHECK(quiesced(peer, import.seg) == 0);
    for (Process* p : {&home, &beside, &peer, &near_peer}) CHECK(types_waiting(*p) == "");
    REQUIRE(publish(peer, import.at, 3));
    CHECK(load(home, exported.at).value == 3);
  }

  TEST_CASE_FIXTURE(Scene, "a_quiesce_is_done_when_the_last_client_has_returned_its_event") {
    auto asked = start_asking(tool, folder, exported.seg, true, 1);
    const uint64_t here = take(home);
    REQUIRE(here != 0);
    CHECK(is(await_happening(peer), CMI_EVENT_QUIESCE, import.seg));
    CHECK(asked.get() == cmi::Status::kReconfig);  // the home has taken it and not returned it
    // The clients and the library go on meanwhile.
    REQUIRE(publish(peer, import.at, 4));
    CHECK(load(home, exported.at).value == 4);
    auto again = start_asking(tool, folder, exported.seg, true);
    give_back(home, here);
    CHECK(again.get() == cmi::Status::kOk);
    // Several count as one.
    CHECK(types_waiting(home) == "");
    CHECK(types_waiting(peer) == "");
    CHECK(ask(tool, folder, exported.seg, false) == cmi::Status::kOk);
    CHECK(is(await_happening(home), CMI_EVENT_RESUME, exported.seg));
    CHECK(is(await_happening(peer), CMI_EVENT_RESUME, import.seg));
    CHECK(types_waiting(home) == "");
  }

  PROCESS_CASE_FIXTURE(Scene, "cmiadm_quiesces_and_resumes_a_segment") {
    const std::string id = std::to_string(exported.seg);
    // The clients return the event while cmiadm waits.
    const auto returns = [] {
      pollfd p{cmi_ofi_evt_fd(ctxt()), POLLIN, 0};
      if (::poll(&p, 1, 20000) != 1) return 0;
      cmi_event* event = CMIFN(ctxt(), 10, evt_get)(ctxt());
      const int type = event != nullptr ? event->type : 0;
      if (event != nullptr) CMIFN(ctxt(), 10, evt_ret)(event, CMI_EVENT_RET_DONE);
      return type;
    };
    auto at_home = home.start(returns), at_peer = peer.start(returns);
    const Ran quiet = cmiadm(cluster, {"--wait", "20", "quiesce", id});
    CHECK(quiet.status == 0);
    CHECK(quiet.says(id));
    CHECK(at_home.get() == CMI_EVENT_QUIESCE);
    CHECK(at_peer.get() == CMI_EVENT_QUIESCE);
    CHECK(seg_at(beside, exported.seg).failed(CMI_ERR_RECONFIG));
    CHECK(cmiadm(cluster, {"resume", id}).status == 0);
    CHECK(is(await_happening(home), CMI_EVENT_RESUME, exported.seg));
    CHECK(is(await_happening(peer), CMI_EVENT_RESUME, import.seg));
    CHECK(seg_at(beside, exported.seg).ok());
    // Whoever does not return it is waited for as long as one likes.
    const Ran slow = cmiadm(cluster, {"--wait", "1", "quiesce", id});
    CHECK(slow.status == 1);
    CHECK(slow.complains("evt_ret"));
    CHECK(cmiadm(cluster, {"resume", id}).status == 0);
    CHECK(cmiadm(cluster, {"quiesce", "17"}).status == 1);
    CHECK(cmiadm(cluster, {"quiesce", "nonsense"}).status == 2);
  }

  TEST_CASE_FIXTURE(Scene, "a_resume_alone_does_nothing") {
    CHECK(ask(tool, folder, exported.seg, false) == cmi::Status::kOk);
    CHECK(types_waiting(home) == "");
    CHECK(types_waiting(peer) == "");
    CHECK(seg_at(home, exported.seg).ok());
  }

  TEST_CASE_FIXTURE(Scene, "what_cannot_be_quiesced_is_inval") {
    CHECK(ask(tool, folder, exported.seg + (1 << 12), true) == cmi::Status::kInval);
    Process& far = cluster.spawn_bare("peer");
    CHECK(ask(far, folder_of(cluster, "peer"), import.seg, true) == cmi::Status::kInval);
    REQUIRE(seg_rm(home, exported.seg).ok());
    CHECK(ask(tool, folder, exported.seg, true) == cmi::Status::kInval);
    CHECK(types_waiting(home) == "");
  }

  TEST_CASE_FIXTURE(Scene, "a_quiesce_is_no_matter_of_who_does_not_share_the_segment") {
    Process& other_peer = cluster.spawn("other_peer");  // shares another segment of the same home
    Process& bystander = cluster.spawn("bystander");    // and one of another context of its node
    import_segment(other_peer, other);
    import_segment(bystander, export_segment(beside));
    auto asked = start_asking(tool, folder, exported.seg, true);
    CHECK(is(await_happening(home), CMI_EVENT_QUIESCE, exported.seg));
    CHECK(is(await_happening(peer), CMI_EVENT_QUIESCE, import.seg));
    CHECK(asked.get() == cmi::Status::kOk);
    CHECK(ask(tool, folder, exported.seg, false) == cmi::Status::kOk);
    CHECK(is(await_happening(home), CMI_EVENT_RESUME, exported.seg));
    CHECK(is(await_happening(peer), CMI_EVENT_RESUME, import.seg));
    for (Process* p : {&home, &beside, &peer, &near_peer, &other_peer, &bystander}) {
      CAPTURE(p->name());
      CHECK(types_waiting(*p) == "");
    }
  }

  TEST_CASE_FIXTURE(Scene, "the_end_of_a_segment_ends_its_quiesce_without_a_resume") {
    auto asked = start_asking(tool, folder, exported.seg, true);
    CHECK(is(await_happening(home), CMI_EVENT_QUIESCE, exported.seg));
    CHECK(is(await_happening(peer), CMI_EVENT_QUIESCE, import.seg));
    CHECK(asked.get() == cmi::Status::kOk);
    REQUIRE(seg_rm(home, exported.seg).ok());
    CHECK(ask(tool, folder, exported.seg, false) == cmi::Status::kInval);
    // It may be attached again where it was imported, and an access says what has become of it.
    const Deadline soon = Deadline::in(20 * kSecond);
    while (quiesced(peer, import.seg) != 0 && !soon.passed()) continue;
    const Answer view = seg_at(peer, import.seg);
    REQUIRE(view.ok());
    CHECK(load(peer, view.at()).cause() == CMI_ERROR_TOKEN);
    // No event names a segment that is marked for deletion.
    for (Process* p : {&home, &beside, &peer, &near_peer}) CHECK(types_waiting(*p) == "");
  }

  TEST_CASE_FIXTURE(Scene, "an_importer_that_comes_during_a_quiesce_is_told_too") {
    auto asked = start_asking(tool, folder, exported.seg, true);
    CHECK(is(await_happening(home), CMI_EVENT_QUIESCE, exported.seg));
    CHECK(is(await_happening(peer), CMI_EVENT_QUIESCE, import.seg));
    CHECK(asked.get() == cmi::Status::kOk);
    Process& late = cluster.spawn("late");
    const Answer seg = seg_imp(late, exported.handle);
    REQUIRE(seg.ok());
    CHECK(seg_at(late, seg.seg()).failed(CMI_ERR_RECONFIG));
    CHECK(is(await_happening(late), CMI_EVENT_QUIESCE, seg.seg()));
    CHECK(seg_at(late, seg.seg()).failed(CMI_ERR_RECONFIG));
    CHECK(ask(tool, folder, exported.seg, false) == cmi::Status::kOk);
    CHECK(is(await_happening(late), CMI_EVENT_RESUME, seg.seg()));
    CHECK(seg_at(late, seg.seg()).ok());
  }

  TEST_CASE_FIXTURE(Scene, "a_quiesced_segment_is_attached_by_nobody_who_imports_it_meanwhile") {
    auto asked = start_asking(tool, folder, exported.seg, true);
    CHECK(is(await_happening(home), CMI_EVENT_QUIESCE, exported.seg));
    CHECK(is(await_happening(peer), CMI_EVENT_QUIESCE, import.seg));
    CHECK(asked.get() == cmi::Status::kOk);
    Process& late = cluster.spawn("late");
    struct Tries {
      int imported, refused;
    };
    // Nobody takes the event meanwhile: the answer to the import says it.
    const Tries tries = late.run(
        [](Flat handle) {
          Tries all{0, 0};
          for (int i = 0; i < 60; ++i) {
            const cmi_seg seg = CMIFN(ctxt(), 10, seg_imp)(ctxt(), handle.as<cmi_rseg>());
            if (seg == CMI_SEG_INVALID) continue;
            ++all.imported;
            const void* at = CMIFN(ctxt(), 10, seg_at)(ctxt(), seg, nullptr, 0);
            all.refused += at == nullptr && cmi_get_error(ctxt()) == CMI_ERR_RECONFIG;
          }
          return all;
        },
        exported.handle);
    CHECK(tries.imported == 60);
    CHECK(tries.refused == 60);
  }

  TEST_CASE("the_home_is_told_of_quiesce_and_resume_when_importers_have_taken_it_in") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    // The first copy of each is taken in late, the next ones not.
    Process& slow = cluster.spawn(
        "slow",
        {{"CMI_FAULT_POINT",
          "mutation_quiesce_window#1=delay:1000000;mutation_resume_window#1=delay:1000000"}});
    Process& tool = cluster.spawn_bare("home");
    const Folder folder = folder_of(cluster, "home");
    const Export exported = export_segment(home);
    const Import import = import_segment(slow, exported);
    auto asked = start_asking(tool, folder, exported.seg, true);
    CHECK(is(await_happening(home), CMI_EVENT_QUIESCE, exported.seg));
    CHECK(seg_at(slow, import.seg).failed(CMI_ERR_RECONFIG));
    CHECK(is(await_happening(slow), CMI_EVENT_QUIESCE, import.seg));
    CHECK(asked.get() == cmi::Status::kOk);
    CHECK(ask(tool, folder, exported.seg, false) == cmi::Status::kOk);
    CHECK(is(await_happening(home), CMI_EVENT_RESUME, exported.seg));
    CHECK(seg_at(slow, import.seg).ok());
    CHECK(is(await_happening(slow), CMI_EVENT_RESUME, import.seg));
  }

  TEST_CASE_FIXTURE(Scene, "the_end_of_an_importer_does_not_hold_up_a_quiesce") {
    auto asked = start_asking(tool, folder, exported.seg, true);
    CHECK(is(await_happening(home), CMI_EVENT_QUIESCE, exported.seg));
    SUBCASE("in_good_order") { REQUIRE(fini(peer).ok()); }
    SUBCASE("killed") {
      peer.kill();
      publish(home, exported.at, 1);
    }
    CHECK(asked.get() == cmi::Status::kOk);
    // The home gets its resume also after the end of the importer was told.
    CHECK(await_happening(home).type == CMI_EVENT_RCTXT_DOWN);
    CHECK(store(home, exported.at + kPage, 5).cause() == Fault::kNone);  // it may mend things
    CHECK(ask(tool, folder, exported.seg, false) == cmi::Status::kOk);
    CHECK(is(await_happening(home), CMI_EVENT_RESUME, exported.seg));
  }

  TEST_CASE_FIXTURE(Scene, "the_end_of_a_home_ends_the_quiesce_of_what_was_imported_from_it") {
    auto asked = start_asking(tool, folder, exported.seg, true);
    CHECK(is(await_happening(home), CMI_EVENT_QUIESCE, exported.seg));
    CHECK(is(await_happening(peer), CMI_EVENT_QUIESCE, import.seg));
    CHECK(asked.get() == cmi::Status::kOk);
    REQUIRE(fini(home).ok());
    const Happening down = await_happening(peer);
    CHECK(down.type == CMI_EVENT_HCTXT_DOWN);
    CHECK(down.n == 2);
    CHECK(types_waiting(peer) == "");  // no resume
    CHECK(quiesced(peer, import.seg) == 0);
    const Answer view = seg_at(peer, import.seg);
    REQUIRE(view.ok());
    CHECK(load(peer, view.at()).cause() == CMI_ERROR_SINVAL);
  }

  PROCESS_CASE_FIXTURE(Scene, "a_client_that_cannot_quiesce_is_aborted_and_for_no_other_event") {
    auto asked = start_asking(tool, folder, exported.seg, true);
    CHECK(is(await_happening(home), CMI_EVENT_QUIESCE, exported.seg));
    CHECK(is(await_happening(peer), CMI_EVENT_QUIESCE, import.seg));
    CHECK(asked.get() == cmi::Status::kOk);
    CHECK(ask(tool, folder, exported.seg, false) == cmi::Status::kOk);
    CHECK(is(await_happening(home), CMI_EVENT_RESUME, exported.seg));
    const uint64_t resumed = take(peer);
    REQUIRE(resumed != 0);
    give_back(peer, resumed, CMI_EVENT_RET_FAILED);
    CHECK(load(peer, import.at).cause() == Fault::kNone);
    auto once_more = start_asking(tool, folder, exported.seg, true, 1);
    CHECK(is(await_happening(home), CMI_EVENT_QUIESCE, exported.seg));
    CHECK(once_more.get() == cmi::Status::kReconfig);
    const uint64_t event = take(peer);
    REQUIRE(event != 0);
    peer.start(
        [](uint64_t e) {
          CMIFN(ctxt(), 10, evt_ret)(reinterpret_cast<cmi_event*>(e), CMI_EVENT_RET_FAILED);
        },
        event);
    CHECK(died_by(peer.wait_end(), SIGABRT));
  }
}

}  // namespace

}  // namespace cmi::test::quiesce_nodes_test
