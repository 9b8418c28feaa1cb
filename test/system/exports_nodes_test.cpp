// Handles and imports across nodes: seg_exp, rseg_del, seg_imp.
#include <doctest/doctest.h>

#include <algorithm>

#include "system/calls.hpp"

namespace cmi::test::exports_nodes_test {

namespace {

TEST_SUITE("exports") {
  TEST_CASE("a_copied_handle_is_imported_on_another_node") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);  // its bytes went through this process
    const Answer imported = seg_imp(peer, exported.handle);
    REQUIRE(imported.ok());
    CHECK(imported.seg() > 0);
    CHECK((seg_status(peer, imported.seg()).status.st_flags & CMI_SEG_ST_IMPORTED) != 0);
  }

  TEST_CASE("seg_exp_by_another_process_is_perm") {
    Cluster cluster;
    Process& maker = cluster.spawn("node");
    Process& other = cluster.spawn("node");
    const Answer seg = seg_get(maker, kPage);
    REQUIRE(seg_at(other, seg.seg()).ok());
    const Flat handle = seg_exp(other, seg.seg());
    CHECK_FALSE(handle.ok());
    CHECK(handle.error == CMI_ERR_PERM);
  }

  TEST_CASE("seg_exp_of_an_import_is_inval") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Import import = import_segment(peer, export_segment(home));
    const Flat handle = seg_exp(peer, import.seg);
    CHECK_FALSE(handle.ok());
    CHECK(handle.error == CMI_ERR_INVAL);
  }

  TEST_CASE("a_segment_may_be_exported_many_times") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Export exported = export_segment(home);
    REQUIRE(publish(home, exported.at, 12));
    for (int i = 0; i < 5; ++i) {
      exported.handle = seg_exp(home, exported.seg);
      REQUIRE(exported.handle.ok());
      CHECK(load(peer, import_segment(peer, exported).at).value == 12);
    }
  }

  TEST_CASE("a_handle_stays_importable_after_rseg_del") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& early = cluster.spawn("early");
    Process& late = cluster.spawn("late");
    const Export exported = export_segment(home);
    const Import before = import_segment(early, exported);
    REQUIRE(rseg_del(home, exported.handle).ok());
    CHECK(store(early, before.at, 21).cause() == Fault::kNone);
    CHECK(wmb(early).ok());
    const Import after = import_segment(late, exported);
    CHECK(load(late, after.at).value == 21);
    CHECK(load(home, exported.at).value == 21);
  }

  TEST_CASE("seg_imp_gives_a_new_id_each_time") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import first = import_segment(peer, exported);
    const Import second = import_segment(peer, exported);
    CHECK(first.seg != second.seg);
    REQUIRE(publish(home, exported.at, 8));
    CHECK(load(peer, first.at).value == 8);
    CHECK(load(peer, second.at).value == 8);
    // What one publishes the other sees: they are segments of their own.
    REQUIRE(publish(peer, first.at, 9));
    CHECK(load(peer, second.at).value == 9);
  }

  TEST_CASE("seg_imp_on_the_home_node_makes_a_remote_segment") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home);
    const auto check = [&](Process& process) {
      const Import import = import_bare(process, exported);
      CHECK(import.seg != exported.seg);
      REQUIRE(cmi_enb(process, 1).ok());
      CHECK(load(process, import.at).cause() == CMI_ERROR_TOKEN);
      REQUIRE(set_token(process, import.seg, exported.token).ok());
      REQUIRE(cmi_enb(process, 0).ok());
      CHECK(load(process, import.at).cause() == CMI_ERROR_ENABLE);
      REQUIRE(cmi_enb(process, 1).ok());
      REQUIRE(publish(home, exported.at, 31));
      CHECK(load(process, import.at).value == 31);
      REQUIRE(publish(home, exported.at, 32));
      CHECK(load(process, import.at).value == 32);
      REQUIRE(publish(process, import.at + 8, 33));
      CHECK(load(home, exported.at + 8).value == 33);
    };
    SUBCASE("in another process of the node") { check(cluster.spawn("home")); }
    SUBCASE("in the process that made it") { check(home); }
  }

  TEST_CASE("seg_imp_of_a_malformed_handle_is_inval") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    struct Wrong {
      int accepted;        // of the flipped bits, how many were imported
      int first_accepted;  // which
      int other_errors;
      int null_error;
    };
    const Wrong wrong = peer.run(
        [](Flat handle) {
          Wrong seen{0, -1, 0, 0};
          for (uint32_t bit = 0; bit < handle.size * 8; ++bit) {
            Flat bad = handle;
            bad.bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
            const cmi_seg seg = CMIFN(ctxt(), 10, seg_imp)(ctxt(), bad.as<cmi_rseg>());
            if (seg != CMI_SEG_INVALID) {
              if (seen.accepted++ == 0) seen.first_accepted = static_cast<int>(bit);
            } else if (cmi_get_error(ctxt()) != CMI_ERR_INVAL) {
              ++seen.other_errors;
            }
          }
          if (CMIFN(ctxt(), 10, seg_imp)(ctxt(), nullptr) == CMI_SEG_INVALID) {
            seen.null_error = cmi_get_error(ctxt());
          }
          return seen;
        },
        exported.handle);
    CHECK(wrong.accepted == 0);
    CHECK(wrong.first_accepted == -1);
    CHECK(wrong.other_errors == 0);
    CHECK(wrong.null_error == CMI_ERR_INVAL);

    Flat foreign = exported.handle;
    foreign.as<cmi_base>()->vendor = 0x1234;
    CHECK(seg_imp(peer, foreign).failed(CMI_ERR_INVAL));
    foreign = exported.handle;
    foreign.as<cmi_base>()->device = 2;
    CHECK(seg_imp(peer, foreign).failed(CMI_ERR_INVAL));
    foreign = exported.handle;
    foreign.as<cmi_base>()->verno = 20;
    CHECK(seg_imp(peer, foreign).failed(CMI_ERR_INVAL));
    foreign = exported.handle;  // truncated: the rest of it is zeros
    std::fill(foreign.bytes.begin() + 24, foreign.bytes.end(), static_cast<unsigned char>(0));
    CHECK(seg_imp(peer, foreign).failed(CMI_ERR_INVAL));
    CHECK(seg_imp(peer, exported.token).failed(CMI_ERR_INVAL));
    CHECK(seg_imp(peer, exported.handle).ok());
  }

  TEST_CASE("seg_imp_of_a_removed_segment_is_inval") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    REQUIRE(seg_rm(home, exported.seg).ok());
    CHECK(seg_imp(peer, exported.handle).failed(CMI_ERR_INVAL));
    REQUIRE(seg_dt(home, exported.seg, exported.at).ok());
    CHECK(seg_imp(peer, exported.handle).failed(CMI_ERR_INVAL));
    CHECK(import_segment(peer, export_segment(home)).seg > 0);
  }

  TEST_CASE("seg_imp_of_a_home_that_has_gone_is_inval") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    home.kill();
    CHECK(seg_imp(peer, exported.handle).failed(CMI_ERR_INVAL));
  }

  TEST_CASE("an_unimported_handle_gives_no_access") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    CHECK(seg_at(peer, exported.seg).failed(CMI_ERR_INVAL));
    CHECK_FALSE(seg_status(peer, exported.seg).answer.ok());
  }

  TEST_CASE("one_import_serves_every_process_of_the_node") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& importer = cluster.spawn("peer");
    Process& second = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(importer, exported);
    const Answer view = seg_at(second, import.seg);
    REQUIRE(view.ok());
    REQUIRE(cmi_enb(second, 1).ok());
    REQUIRE(publish(importer, import.at, 41));
    CHECK(load(second, view.at()).value == 41);
    REQUIRE(publish(second, view.at(), 42));
    CHECK(load(importer, import.at).value == 42);
    CHECK(load(home, exported.at).value == 42);
  }
}

}  // namespace

}  // namespace cmi::test::exports_nodes_test
