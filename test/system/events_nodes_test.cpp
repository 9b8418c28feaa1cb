// Events that peers cause: contexts that end, stores that are lost, nodes that are cut off; each at
// the home, at the importer and at a context that is not concerned.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "system/calls.hpp"
#include "system/happenings.hpp"

namespace cmi::test::events_nodes_test {

namespace {

using Segments = std::vector<cmi_seg>;
using Lines = std::vector<uint64_t>;

// A home learns that an importer has ended when it is owed an answer by it.
void provoke(Process& home, const Export& exported) { publish(home, exported.at, 1); }

// A segment whose importers store without asking the home first, so that they can while it is
// stopped.
Export export_consistent(Process& home, size_t size = 16 * kPage) {
  return export_segment(home, size, kAllRights, CMI_SEG_CLIENT_CONSIST);
}

// All pages of the import that the test stores to are stored to while the home cannot take them.
void store_all(Process& process, uint64_t at, const std::vector<uint64_t>& pages) {
  for (uint64_t page : pages) {
    REQUIRE(store(process, at + page * kPage, page + 100).cause() == Fault::kNone);
  }
}

Answer request_map(Process& process, uint64_t id) {
  return process.run(
      [](uint64_t request) {
        cmi_ctl_cfg cfg{};
        cfg.ctl_cfg_cmap_reqid = request;
        const int result = CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_NODE_CMAP_GET, &cfg);
        return answer(result, result != 0);
      },
      id);
}

Answer set_timeout(Process& process, uint32_t milliseconds) {
  return process.run(
      [](uint32_t ms) {
        cmi_ctl_cfg cfg{};
        cfg.ctl_cfg_rcfg_tout = ms;
        const int result = CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_RECONF_TOUT, &cfg);
        return answer(result, result != 0);
      },
      milliseconds);
}

TEST_SUITE("events") {
  TEST_CASE("a_home_is_told_once_which_segments_a_killed_importer_had") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& victim = cluster.spawn("victim");
    Process& peer = cluster.spawn("peer");
    const Export first = export_segment(home);
    const Export second = export_segment(home);
    const Export other = export_segment(home);
    const Import here = import_segment(victim, first);
    import_bare(victim, second);  // without a token, it is an import all the same
    const Import there = import_segment(peer, first);
    import_segment(peer, other);
    const Flat address = node_address(victim);
    REQUIRE(load(victim, here.at).cause() == Fault::kNone);
    REQUIRE(load(peer, there.at).cause() == Fault::kNone);
    victim.kill();
    provoke(home, first);
    const Happening h = await_happening(home);
    CHECK(h.type == CMI_EVENT_RCTXT_DOWN);
    CHECK(h.own_context);
    Segments both{first.seg, second.seg};
    std::sort(both.begin(), both.end());
    CHECK(h.segments() == both);
    CHECK(h.names(0, address));
    // No more of it, also when it is looked for again; nobody else is concerned.
    provoke(home, first);
    CHECK(types_waiting(home) == "");
    CHECK(types_waiting(peer) == "");
  }

  TEST_CASE("who_was_home_and_importer_is_told_of_once_as_each") {
    Cluster cluster;
    Process& left = cluster.spawn("left");
    Process& right = cluster.spawn("right");
    const Export of_left = export_segment(left), of_right = export_segment(right);
    const Import here = import_segment(left, of_right), there = import_segment(right, of_left);
    REQUIRE(load(left, here.at).cause() == Fault::kNone);
    REQUIRE(load(right, there.at).cause() == Fault::kNone);
    const Flat address = node_address(right);
    right.kill();
    provoke(left, of_left);
    CHECK(load(left, here.at + kPage).cause() == CMI_ERROR_SINVAL);
    Happening ends[] = {await_happening(left), await_happening(left)};
    if (ends[1].type == CMI_EVENT_HCTXT_DOWN) std::swap(ends[0], ends[1]);
    CHECK(ends[0].type == CMI_EVENT_HCTXT_DOWN);
    CHECK(ends[0].segments() == Segments{here.seg});
    CHECK(ends[1].type == CMI_EVENT_RCTXT_DOWN);
    CHECK(ends[1].segments() == Segments{of_left.seg});
    for (const Happening& end : ends) CHECK(end.names(0, address));
    CHECK(types_waiting(left) == "");
  }

  TEST_CASE("importers_are_told_once_which_segments_they_had_from_a_killed_home") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& kept = cluster.spawn("kept");
    Process& peer = cluster.spawn("peer");
    Process& beside = cluster.spawn("peer");  // attaches what its neighbour imported
    Process& bystander = cluster.spawn("bystander");
    const Export first = export_segment(home);
    const Export second = export_segment(home);
    const Export other = export_segment(kept);
    const Import here = import_segment(peer, first);
    const Import bare = import_bare(peer, second);
    const Import good = import_segment(peer, other);
    import_segment(bystander, other);
    REQUIRE(cmi_enb(beside, 1).ok());
    const Answer view = seg_at(beside, here.seg);
    REQUIRE(load(beside, view.at()).cause() == Fault::kNone);
    const Flat address = node_address(home);
    home.kill();
    CHECK(load(peer, here.at).cause() == CMI_ERROR_SINVAL);
    const Happening h = await_happening(peer);
    CHECK(h.type == CMI_EVENT_HCTXT_DOWN);
    Segments both{here.seg, bare.seg};
    std::sort(both.begin(), both.end());
    CHECK(h.segments() == both);
    CHECK(h.names(0, address));
    // Accesses go on raising; no event comes of them.
    CHECK(load(peer, here.at + kPage).cause() == CMI_ERROR_SINVAL);
    CHECK(load(peer, good.at).cause() == Fault::kNone);
    CHECK(load(beside, view.at() + kPage).cause() == CMI_ERROR_SINVAL);
    CHECK(types_waiting(peer) == "");
    CHECK(types_waiting(beside) == "");
    CHECK(types_waiting(kept) == "");
    CHECK(types_waiting(bystander) == "");
  }

  TEST_CASE("the_end_of_an_importer_in_good_order_is_told_to_its_homes") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export first = export_segment(home);
    const Export second = export_segment(home);
    const Import here = import_segment(peer, first);
    import_segment(peer, second);
    REQUIRE(store(peer, here.at, 5).cause() == Fault::kNone);
    const Flat address = node_address(peer);
    REQUIRE(fini(peer).ok());
    const Happening h = next_happening(home);  // it is there when fini has returned
    CHECK(h.type == CMI_EVENT_RCTXT_DOWN);
    Segments both{first.seg, second.seg};
    std::sort(both.begin(), both.end());
    CHECK(h.segments() == both);
    CHECK(h.names(0, address));
    CHECK(types_waiting(home) == "");
    CHECK(load(home, first.at).value == 5);
  }

  TEST_CASE("the_end_of_a_home_in_good_order_is_told_to_its_importers") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Process& bystander = cluster.spawn("bystander");
    const Export first = export_segment(home);
    const Export second = export_segment(home);
    const Import here = import_segment(peer, first);
    const Import bare = import_bare(peer, second);
    const Flat address = node_address(home);
    REQUIRE(fini(home).ok());
    const Happening h = next_happening(peer);
    CHECK(h.type == CMI_EVENT_HCTXT_DOWN);
    Segments both{here.seg, bare.seg};
    std::sort(both.begin(), both.end());
    CHECK(h.segments() == both);
    CHECK(h.names(0, address));
    CHECK(load(peer, here.at).cause() == CMI_ERROR_SINVAL);
    CHECK(types_waiting(peer) == "");
    CHECK(types_waiting(bystander) == "");
  }

  TEST_CASE("letting_go_of_a_single_import_is_no_event") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Export other = export_segment(home);
    const Import gone = import_segment(peer, exported);
    const Import kept = import_segment(peer, other);
    REQUIRE(seg_dt(peer, gone.seg, gone.at).ok());
    REQUIRE(seg_rm(peer, gone.seg).ok());
    REQUIRE(load(peer, kept.at).cause() == Fault::kNone);
    CHECK(types_waiting(home) == "");
    // And it is not among those that are told later.
    REQUIRE(fini(peer).ok());
    CHECK(next_happening(home).segments() == Segments{other.seg});
  }

  TEST_CASE("no_event_names_a_segment_that_was_marked_for_deletion") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export kept = export_segment(home);
    const Export doomed = export_segment(home);
    const Import here = import_segment(peer, kept);
    const Import there = import_segment(peer, doomed);
    SUBCASE("at_home_before") {
      REQUIRE(seg_rm(home, doomed.seg).ok());
      REQUIRE(fini(peer).ok());
      CHECK(next_happening(home).segments() == Segments{kept.seg});
    }
    SUBCASE("at_home_after") {  // while the event waits
      REQUIRE(fini(peer).ok());
      REQUIRE(seg_rm(home, doomed.seg).ok());
      CHECK(next_happening(home).segments() == Segments{kept.seg});
    }
    SUBCASE("at_the_importer") {
      REQUIRE(seg_rm(peer, there.seg).ok());
      REQUIRE(fini(home).ok());
      CHECK(next_happening(peer).segments() == Segments{here.seg});
    }
    SUBCASE("at_home_for_the_importer") {
      REQUIRE(seg_rm(home, doomed.seg).ok());
      CHECK(load(peer, there.at).cause() == CMI_ERROR_TOKEN);
      REQUIRE(fini(home).ok());
      CHECK(next_happening(peer).segments() == Segments{here.seg});
    }
    SUBCASE("at_home_for_an_importer_without_a_token") {
      const Export unused = export_segment(home);
      import_bare(peer, unused);
      Export revoked = export_segment(home);
      import_segment(peer, revoked);
      REQUIRE(tok_del(home, revoked.token).ok());
      REQUIRE(seg_rm(home, unused.seg).ok());
      REQUIRE(seg_rm(home, revoked.seg).ok());
      REQUIRE(fini(home).ok());
      const Segments told = next_happening(peer).segments();
      CHECK(told == Segments{std::min(here.seg, there.seg), std::max(here.seg, there.seg)});
    }
    SUBCASE("all_of_them") {
      REQUIRE(seg_rm(peer, there.seg).ok());
      REQUIRE(seg_rm(peer, here.seg).ok());
      REQUIRE(fini(home).ok());
      CHECK(next_happening(peer).type == 0);
    }
  }

  TEST_CASE("stores_lost_with_their_home_are_named_each_once") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Process& bystander = cluster.spawn("bystander");
    const Export exported = export_consistent(home, 64 * kPage);
    const Export untouched = export_segment(home);
    const Import import = import_segment(peer, exported);
    const Import quiet = import_segment(peer, untouched);
    import_segment(bystander, exported);
    const Answer second = seg_at(peer, import.seg);
    REQUIRE(second.ok());
    const uint64_t lowest = std::min(import.at, second.at());
    std::vector<uint64_t> pages{1, 2, 3, 17, 40, 63};
    for (uint64_t page : pages) REQUIRE(load(peer, import.at + page * kPage).value == 0);
    REQUIRE(load(peer, quiet.at).value == 0);
    home.stop();
    store_all(peer, import.at, pages);
    // Once more where it is on its way already, once through the other view.
    REQUIRE(store(peer, import.at + kPage + 8, 1).cause() == Fault::kNone);
    REQUIRE(store(peer, second.at() + 2 * kPage + 8, 1).cause() == Fault::kNone);
    home.kill();
    CHECK(load(peer, import.at + 5 * kPage).cause() == CMI_ERROR_SINVAL);
    const Happening lost = await_happening(peer);
    CHECK(lost.type == CMI_EVENT_STORE_FAILURE);
    CHECK(lost.seg == import.seg);
    Lines lines;
    for (uint64_t page : pages) lines.push_back(lowest + page * kPage);
    CHECK(lost.lines() == lines);
    const Happening down = await_happening(peer);
    CHECK(down.type == CMI_EVENT_HCTXT_DOWN);
    CHECK(down.n == 2);
    CHECK(wmb(peer).failed(CMI_ERR_STORE));
    CHECK(types_waiting(peer) == "");
    CHECK(types_waiting(bystander).find(std::to_string(CMI_EVENT_STORE_FAILURE)) ==
          std::string::npos);
  }

  TEST_CASE("stores_that_a_neighbour_lost_are_told_to_the_process_that_imported") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Process& beside = cluster.spawn("peer");
    const Export exported = export_consistent(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(cmi_enb(beside, 1).ok());
    const Answer view = seg_at(beside, import.seg);
    for (uint64_t page : {4, 5, 9}) REQUIRE(load(beside, view.at() + page * kPage).value == 0);
    home.stop();
    store_all(beside, view.at(), {4, 5, 9});
    home.kill();
    CHECK(load(beside, view.at()).cause() == CMI_ERROR_SINVAL);
    // That the home is down, it may find out first.
    Happening lost = await_happening(peer);
    if (lost.type == CMI_EVENT_HCTXT_DOWN) lost = await_happening(peer);
    CHECK(lost.type == CMI_EVENT_STORE_FAILURE);
    CHECK(lost.seg == import.seg);
    CHECK(lost.lines() ==
          Lines{import.at + 4 * kPage, import.at + 5 * kPage, import.at + 9 * kPage});
    CHECK(types_waiting(beside) == "");
  }

  TEST_CASE("lost_stores_to_a_segment_that_is_not_attached_are_told_without_addresses") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_consistent(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).value == 0);
    home.stop();
    REQUIRE(store(peer, import.at, 3).cause() == Fault::kNone);
    home.kill();
    CHECK(load(peer, import.at + kPage).cause() == CMI_ERROR_SINVAL);
    REQUIRE(seg_dt(peer, import.seg, import.at).ok());
    const Happening lost = await_happening(peer);
    CHECK(lost.type == CMI_EVENT_STORE_FAILURE);
    CHECK(lost.seg == import.seg);
    CHECK(lost.n == 0);
  }

  TEST_CASE("a_store_that_changed_nothing_is_not_lost") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_consistent(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).value == 0);
    home.stop();
    REQUIRE(store(peer, import.at, 0).cause() == Fault::kNone);
    home.kill();
    CHECK(load(peer, import.at + kPage).cause() == CMI_ERROR_SINVAL);
    CHECK(await_happening(peer).type == CMI_EVENT_HCTXT_DOWN);
    CHECK(types_waiting(peer) == "");
  }

  TEST_CASE("stores_under_a_revoked_token_are_told_and_again_after_a_new_token") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(open_fb(peer).ok());
    int losses = 0;
    for (uint64_t round = 1; round <= 60 && losses < 2; ++round) {
      const uint64_t line = import.at + round % 16 * kPage;
      REQUIRE(load(peer, line).cause() == Fault::kNone);
      REQUIRE(store(peer, line, 1000 + round).cause() == Fault::kNone);
      // Races with the timer, which may bring the store home in time.
      REQUIRE(tok_del(home, exported.token).ok());
      const Answer flushed = flush_fb(peer);
      CHECK(load(peer, line).cause() == CMI_ERROR_TOKEN);
      const Happening h = next_happening(peer);  // it is there when the flush has failed
      if (flushed.ok()) {
        CHECK(h.type == 0);
      } else {
        ++losses;
        CHECK(flushed.failed(CMI_ERR_STORE));
        CHECK(h.type == CMI_EVENT_STORE_FAILURE);
        CHECK(h.seg == import.seg);
        CHECK(h.lines() == Lines{line});
      }
      CHECK(types_waiting(peer) == "");
      exported.token = tok_new(home, exported.seg, kAllRights);
      REQUIRE(set_token(peer, import.seg, exported.token).ok());
    }
    CHECK(losses == 2);
    CHECK(types_waiting(home) == "");
    CHECK(close_fb(peer).ok());
  }

  TEST_CASE("every_request_for_a_map_is_answered_with_its_id") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Import import = import_segment(peer, export_segment(home));
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    CHECK(request_map(home, 0).failed(CMI_ERR_INVAL));
    for (Process* p : {&home, &peer}) {
      for (uint64_t id : {7ull, 7ull, 1ull << 63}) REQUIRE(request_map(*p, id).ok());
      std::vector<uint64_t> ids;
      for (int i = 0; i < 3; ++i) {
        const Happening h = await_happening(*p);
        CHECK(h.type == CMI_EVENT_CMAP);
        CHECK(h.n == 0);
        ids.push_back(h.request);
      }
      CHECK(ids == std::vector<uint64_t>{7, 7, 1ull << 63});
      CHECK(types_waiting(*p) == "");
    }
  }

  TEST_CASE("a_map_names_the_peers_that_cannot_be_reached_and_no_others") {
    Cluster cluster;
    const Env cut{{"CMI_FAULT_POINT", "listener_out_of_reach=fail"}};
    Process& home = cluster.spawn("home", cut);
    Process& silent = cluster.spawn("silent");
    Process& peer = cluster.spawn("peer", cut);
    Process& stranger = cluster.spawn("stranger");
    const Export exported = export_segment(home);
    const Export back = export_segment(silent);
    import_segment(silent, exported);
    import_segment(peer, exported);
    import_segment(peer, back);
    import_segment(stranger, back);
    const Flat address = node_address(silent);
    REQUIRE(set_timeout(home, 200).ok());
    REQUIRE(set_timeout(peer, 200).ok());
    silent.stop();
    for (Process* p : {&home, &peer}) {  // its home, and one that imports from it
      REQUIRE(request_map(*p, 5).ok());
      const Happening h = await_happening(*p);
      CHECK(h.type == CMI_EVENT_CMAP);
      CHECK(h.request == 5);
      CHECK(h.n == 1);
      CHECK(h.names(0, address));
    }
    silent.signal(SIGCONT);
    // A process that is stopped on a node that can be reached is not cut off.
    Process& other = cluster.spawn("other");
    REQUIRE(set_timeout(other, 200).ok());
    import_segment(other, exported);
    home.stop();
    REQUIRE(request_map(other, 6).ok());
    const Happening h = await_happening(other);
    CHECK(h.request == 6);
    CHECK(h.n == 0);
    home.signal(SIGCONT);
  }

  TEST_CASE("a_partition_is_told_by_a_map_before_the_contexts_that_are_down") {
    Cluster cluster;
    const Env cut{{"CMI_FAULT_POINT", "listener_out_of_reach=fail"}};
    Process& home = cluster.spawn("home", cut);
    Process& peer = cluster.spawn("peer", cut);
    Process& far = cluster.spawn("far");
    Process& bystander = cluster.spawn("bystander");
    const Export exported = export_segment(home);
    const Export back = export_segment(far);
    const Import held = import_segment(far, exported);
    const Import import = import_segment(peer, back);
    const Export aside = export_segment(bystander);
    import_segment(peer, aside);
    REQUIRE(load(far, held.at).cause() == Fault::kNone);
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    const Flat address = node_address(far);
    REQUIRE(publish(home, exported.at + 8, 1));  // the home has a connection to tell it over
    far.stop();
    // Both sides wait for it: the home for an acknowledgement, the importer for a page.
    auto pending = home.start(
        [](uint64_t at) {
          store64(at, 1);
          return CMIFN(ctxt(), 10, wmb_fn)(ctxt());
        },
        exported.at);
    const Deadline soon = Deadline::in(25 * kSecond);
    int cause = 0;
    do {
      cause = load(peer, import.at + kPage).cause();
    } while (cause == CMI_ERROR_TRANSIENT && !soon.passed());
    CHECK(cause == CMI_ERROR_SINVAL);
    CHECK(pending.get() == 0);
    const auto check_order = [&](Process& p, int down, cmi_seg seg) {
      const Happening map = await_happening(p);
      CHECK(map.type == CMI_EVENT_CMAP);
      CHECK(map.request == 0);
      CHECK(map.n == 1);
      CHECK(map.names(0, address));
      const Happening h = await_happening(p);
      CHECK(h.type == down);
      CHECK(h.segments() == Segments{seg});
      CHECK(h.names(0, address));
      CHECK(types_waiting(p) == "");
    };
    check_order(home, CMI_EVENT_RCTXT_DOWN, exported.seg);
    check_order(peer, CMI_EVENT_HCTXT_DOWN, import.seg);
    CHECK(types_waiting(bystander) == "");
    // Who comes back after that finds that its home has cut it off.
    far.signal(SIGCONT);
    CHECK(await_happening(far).type == CMI_EVENT_HCTXT_DOWN);
    CHECK(load(far, held.at).cause() == CMI_ERROR_SINVAL);
  }

  TEST_CASE("a_cut_is_told_once_of_a_peer_that_is_home_and_importer") {
    Cluster cluster;
    const Env cut{{"CMI_FAULT_POINT", "listener_out_of_reach=fail"}, {"CMI_DEAD_AFTER", "1500"}};
    Process& here = cluster.spawn("here", cut);
    Process& far = cluster.spawn("far");
    Process& third =
        cluster.spawn("third", {{"CMI_FAULT_POINT", "in_flux_before_ack=delay:500000"}});
    // Client-inconsistent, with a page that will be in flux: the end of the importer is told when
    // the other one has heard of it, well after that of the home.
    const Export exported = export_segment(here);
    const Export back = export_segment(far);
    const Import held = import_segment(far, exported);
    const Import beside = import_segment(third, exported);
    const Import import = import_segment(here, back);
    REQUIRE(load(here, import.at).cause() == Fault::kNone);
    REQUIRE(load(third, beside.at).cause() == Fault::kNone);
    REQUIRE(publish(here, exported.at + 8, 1));
    REQUIRE(store(far, held.at + 3 * kPage, 1).cause() == Fault::kNone);
    far.stop();
    std::string types;
    while (types.find(std::to_string(CMI_EVENT_RCTXT_DOWN)) == std::string::npos) {
      const int type = await_happening(here).type;
      if (type == 0) break;
      types += std::to_string(type) + " ";
    }
    CAPTURE(types);
    size_t maps = 0;
    const std::string map = std::to_string(CMI_EVENT_CMAP);
    for (size_t at = types.find(map); at != std::string::npos; at = types.find(map, at + 1)) ++maps;
    CHECK(maps == 1);
    CHECK(types.find(map) < types.find(std::to_string(CMI_EVENT_HCTXT_DOWN)));
    CHECK(types.find(map) < types.find(std::to_string(CMI_EVENT_RCTXT_DOWN)));
    far.kill();
  }

  TEST_CASE("who_reads_of_a_loss_finds_its_event_while_another_thread_is_telling_it") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer =
        cluster.spawn("peer", {{"CMI_FAULT_POINT", "mutation_report_window#1=delay:300000"}});
    const Export exported = export_consistent(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    home.stop();
    REQUIRE(store(peer, import.at, 3).cause() == Fault::kNone);
    // Asks for nothing but the error, again and again, while the service thread finds out.
    auto pending = peer.start([] {
      const Deadline deadline = Deadline::in(25 * kSecond);
      while (!deadline.passed()) {
        if (CMIFN(ctxt(), 10, wmb_fn)(ctxt()) == 0) continue;
        cmi_event* event = CMIFN(ctxt(), 10, evt_get)(ctxt());
        const int type = event != nullptr ? static_cast<int>(event->type) : 0;
        if (event != nullptr) CMIFN(ctxt(), 10, evt_ret)(event, CMI_EVENT_RET_DONE);
        return type;
      }
      return -1;
    });
    home.kill();
    CHECK(pending.get() == CMI_EVENT_STORE_FAILURE);
    CHECK(await_happening(peer).type == CMI_EVENT_HCTXT_DOWN);
    CHECK(types_waiting(peer) == "");
  }

  TEST_CASE("who_loads_while_a_dead_home_is_being_given_up_gets_sinval_not_token") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer =
        cluster.spawn("peer", {{"CMI_FAULT_POINT", "mutation_lost_home_window#1=delay:300000"}});
    const Export exported = export_consistent(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    home.stop();
    REQUIRE(store(peer, import.at, 3).cause() == Fault::kNone);
    // The barrier gives up what the home owes while the service thread stands in the window.
    auto pending = peer.start(
        [](uint64_t at) {
          if (CMIFN(ctxt(), 10, wmb_fn)(ctxt()) == 0) return -1;
          return load64(at).cause();
        },
        import.at);
    home.kill();
    CHECK(pending.get() == CMI_ERROR_SINVAL);
  }

  TEST_CASE("stores_whose_answer_never_comes_are_told_once_and_a_new_token_goes_on") {
    Cluster cluster;
    // It lives, and yet never answers what came first.
    Process& home = cluster.spawn("home", {{"CMI_FAULT_POINT", "round_never_over#1=fail"}});
    Process& peer = cluster.spawn("peer", {{"CMI_DEAD_AFTER", "1000"}});
    const Export exported = export_consistent(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    REQUIRE(store(peer, import.at + 5 * kPage + 8, 3).cause() == Fault::kNone);
    CHECK(wmb(peer).failed(CMI_ERR_STORE));
    const Happening lost = next_happening(peer);
    CHECK(lost.type == CMI_EVENT_STORE_FAILURE);
    CHECK(lost.seg == import.seg);
    CHECK(lost.lines() == std::vector<uint64_t>{import.at + 5 * kPage});
    CHECK(types_waiting(peer) == "");
    CHECK(load(peer, import.at + 5 * kPage).cause() == CMI_ERROR_TOKEN);
    REQUIRE(set_token(peer, import.seg, exported.token).ok());
    CHECK(publish(peer, import.at + 5 * kPage + 8, 4));
    CHECK(publish(peer, import.at + 6 * kPage, 5));
    CHECK(load(home, exported.at + 5 * kPage + 8).value == 4);
    CHECK(load(home, exported.at + 6 * kPage).value == 5);
    CHECK(types_waiting(peer) == "");
  }

  TEST_CASE("stores_lost_by_a_fault_of_this_side_are_a_hardware_event_before_all_others") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {{"CMI_FAULT_POINT", "link_no_endpoint#2+=fail"}});
    const Export exported = export_consistent(home);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at + 2 * kPage).value == 0);
    REQUIRE(open_fb(peer).ok());
    home.stop();
    REQUIRE(store(peer, import.at + 2 * kPage, 3).cause() == Fault::kNone);
    // The connection stalls, and no other can be made: there is no endpoint to make it from.
    const Answer flushed = flush_fb(peer);
    CHECK(flushed.failed(CMI_ERR_HW));
    const Happening hw = await_happening(peer);
    CHECK(hw.type == CMI_EVENT_HW);
    CHECK(hw.seg == import.seg);
    CHECK(hw.lines() == Lines{import.at + 2 * kPage});
    CHECK(await_happening(peer).type == CMI_EVENT_HCTXT_DOWN);
    CHECK(types_waiting(peer) == "");
    home.signal(SIGCONT);
  }

  TEST_CASE("a_burst_of_ends_is_told_one_by_one") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home);
    constexpr size_t kPeers = 6;
    std::vector<Flat> addresses;
    std::vector<Process*> peers;
    for (size_t i = 0; i < kPeers; ++i) {
      peers.push_back(&cluster.spawn("peer" + std::to_string(i)));
      const Import import = import_segment(*peers.back(), exported);
      REQUIRE(load(*peers.back(), import.at).cause() == Fault::kNone);
      addresses.push_back(node_address(*peers.back()));
    }
    for (Process* p : peers) p->kill();
    provoke(home, exported);
    std::vector<int> told(kPeers, 0);
    for (size_t i = 0; i < kPeers; ++i) {
      const Happening h = await_happening(home);
      CHECK(h.type == CMI_EVENT_RCTXT_DOWN);
      CHECK(h.segments() == Segments{exported.seg});
      for (size_t k = 0; k < kPeers; ++k) told[k] += h.names(0, addresses[k]);
    }
    CHECK(told == std::vector<int>(kPeers, 1));
    CHECK(types_waiting(home) == "");
  }

  TEST_CASE("an_access_to_a_silent_home_is_transient_after_the_timeout_that_the_client_set") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    CHECK(set_timeout(peer, 0).failed(CMI_ERR_INVAL));
    CHECK(set_timeout(peer, UINT32_MAX).ok());
    CHECK(set_timeout(peer, 150).ok());
    const Import import = import_segment(peer, export_segment(home));
    home.stop();
    CHECK(load(peer, import.at).cause() == CMI_ERROR_TRANSIENT);
    home.signal(SIGCONT);
    const Deadline soon = Deadline::in(10 * kSecond);
    int cause;
    do {
      cause = load(peer, import.at).cause();
    } while (cause == CMI_ERROR_TRANSIENT && !soon.passed());
    CHECK(cause == Fault::kNone);
    CHECK(types_waiting(peer) == "");
  }
}

}  // namespace

}  // namespace cmi::test::events_nodes_test
