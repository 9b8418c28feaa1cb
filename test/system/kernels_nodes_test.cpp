// What takes the place of features that a kernel lacks. Most of that is shown by the other tests,
// which run once more under the label old-kernel; here is what only the substitutes can get wrong.
#include <cmi/ofi/cmi_impl.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <thread>

#include "core/base/clock.hpp"
#include "core/base/fd.hpp"
#include "system/calls.hpp"

namespace cmi::test::kernels_nodes_test {

namespace {

const Env kOld{{"CMI_KERNEL", "6.1"}, {"CMI_FAULT", "signal"}};
constexpr uint64_t kPages = 16;  // of the segment

cmi_ofi_stats stats_of(Process& process) {
  return process.run([] {
    cmi_ofi_stats stats{};
    stats.size = sizeof stats;
    cmi_ofi_get_stats(ctxt(), &stats);
    return stats;
  });
}

// Fetched, or brought up to date.
uint64_t pages_renewed(Process& process) {
  const cmi_ofi_stats stats = stats_of(process);
  return stats.pages_fetched + stats.pages_updated;
}

// Loads the first word of each page; their sum.
uint64_t load_all(Process& process, uint64_t view) {
  return process.run(
      [](uint64_t at) {
        uint64_t sum = 0;
        for (uint64_t page = 0; page < kPages; ++page) sum += load64(at + page * kPage).value;
        return sum;
      },
      view);
}

bool load_until_consist(Process& process, uint64_t at) {
  const Deadline deadline = Deadline::in(20 * kSecond);
  int cause;
  do cause = load(process, at).cause();
  while (cause != CMI_ERROR_CONSIST && !deadline.passed());
  return cause == CMI_ERROR_CONSIST;
}

TEST_SUITE("kernels") {
  TEST_CASE("without_tracking_by_the_kernel_only_pages_stored_to_at_home_are_published") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kOld);
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, kPages * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(load_all(peer, import.at) == 0);
    for (uint64_t round = 1; round <= 20; ++round) {
      const uint64_t before = pages_renewed(peer);
      REQUIRE(store(home, exported.at + 3 * kPage, round).cause() == Fault::kNone);
      REQUIRE(store(home, exported.at + 11 * kPage, round).cause() == Fault::kNone);
      REQUIRE(wmb(home).ok());
      CHECK(load_all(peer, import.at) == 2 * round);
      // Each of the two once by the barrier, and perhaps once by the timer before.
      const uint64_t renewed = pages_renewed(peer) - before;
      CHECK(renewed >= 2);
      CHECK(renewed <= 4);
    }
  }

  TEST_CASE(
      "without_tracking_by_the_kernel_other_processes_of_the_home_node_publish_their_stores") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kOld);
    Process& other = cluster.spawn("home", kOld);
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, kPages * kPage);
    const Answer view = seg_at(other, exported.seg);
    REQUIRE(view.ok());
    const Import import = import_segment(peer, exported);
    for (uint64_t round = 1; round <= 20; ++round) {
      REQUIRE(load_all(peer, import.at) == 2 * (round - 1));
      REQUIRE(store(other, view.at() + 5 * kPage, round).cause() == Fault::kNone);
      REQUIRE(store(other, view.at() + 6 * kPage, round).cause() == Fault::kNone);
      REQUIRE(wmb(other).ok());
      CHECK(load_all(peer, import.at) == 2 * round);
    }
    // The timer, then the end of the view, bring what no barrier did.
    REQUIRE(store(other, view.at() + 7 * kPage, 1).cause() == Fault::kNone);
    CHECK(load_until(peer, import.at + 7 * kPage, 1) == 1);
    REQUIRE(store(other, view.at() + 8 * kPage, 1).cause() == Fault::kNone);
    REQUIRE(seg_dt(other, exported.seg, view.at()).ok());
    REQUIRE(wmb(home).ok());
    CHECK(load(peer, import.at + 8 * kPage).value == 1);
  }

  TEST_CASE("without_tracking_by_the_kernel_stores_of_a_killed_process_are_published") {
    Cluster cluster;
    Process& home = cluster.spawn("home", kOld);
    Process& other = cluster.spawn("home", kOld);
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, kPages * kPage);
    const Answer view = seg_at(other, exported.seg);
    REQUIRE(view.ok());
    const Import import = import_segment(peer, exported);
    REQUIRE(load_all(peer, import.at) == 0);
    // Killed by the next instruction: the store is known to its process alone.
    (void)other.start(
        [](uint64_t at) {
          store64(at, 7);
          ::kill(::getpid(), SIGKILL);
        },
        view.at());
    CHECK(died_by(other.wait_end(), SIGKILL));
    REQUIRE(wmb(home).ok());
    CHECK(load(peer, import.at).value == 7);
  }

  TEST_CASE("a_kernel_that_protects_one_mapping_at_a_time_notes_stores_beside_pages_in_flux") {
    Cluster cluster;
    Env old = kOld;
    old.push_back({"CMI_FAULT_POINT", "protect_one_mapping=fail"});
    Process& home = cluster.spawn("home", old);
    Process& victim = cluster.spawn(
        "victim", {{"CMI_FAULT_POINT", mapped() ? "mutate_timer_takes_nothing=fail"
                                                : "publish_before_send=delay:60000000"}});
    const Export exported = export_segment(home, kPages * kPage);
    const Import import = import_segment(victim, exported);
    REQUIRE(store(victim, import.at + kPage, 1).cause() == Fault::kNone);
    victim.kill();
    REQUIRE(load_until_consist(home, exported.at + kPage));
    // Watched only when somebody imports again, with a covered page in the middle.
    const Answer view = seg_at(home, exported.seg);
    REQUIRE(view.ok());
    Process& peer = cluster.spawn("peer");
    const Import other = import_segment(peer, exported);
    for (const uint64_t page : {uint64_t{0}, uint64_t{2}}) {
      REQUIRE(load(peer, other.at + page * kPage).cause() == Fault::kNone);
      REQUIRE(publish(home, view.at() + page * kPage, page + 7));
      CHECK(load(peer, other.at + page * kPage).value == page + 7);
    }
  }

  // Mapping it, the load keeps a twin for a moment, as if the page were stored to.
  TEST_CASE("a_load_through_another_view_does_not_pass_for_the_store_that_makes_a_page_hot") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", kOld);
    const Export exported = export_segment(home, kPages * kPage);
    const Import import = import_segment(peer, exported);
    const Answer other = seg_at(peer, import.seg);
    REQUIRE(other.ok());
    REQUIRE(publish(peer, import.at, 1));
    REQUIRE(load(peer, other.at()).value == 1);
    // The first store after a write-back faults and makes the page hot: the second does not.
    REQUIRE(publish(peer, import.at, 2));
    const uint64_t faults = stats_of(peer).store_faults;
    REQUIRE(publish(peer, import.at, 3));
    CHECK(stats_of(peer).store_faults == faults);
    CHECK(load(home, exported.at).value == 3);
  }

  TEST_CASE("a_store_between_the_two_steps_of_mapping_a_page_is_not_lost") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn(
        "peer", {kOld[0], kOld[1], {"CMI_FAULT_POINT", "map_before_protect=delay:20000"}});
    const Export exported = export_segment(home, kPages * kPage);
    const Import import = import_segment(peer, exported);
    // A thread loads; while its fault is between mapping and protecting the page, this one stores.
    struct Seen {
      bool mapped, stored;
    };
    const auto store_meanwhile = [](uint64_t at) {
      Seen seen{};
      Fd pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
      std::thread loader([&] {
        CMIFN(ctxt(), 10, ini_th)(ctxt());
        CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
        load64(at);
        CMIFN(ctxt(), 10, fini)(ctxt());
      });
      const Deadline deadline = Deadline::in(10 * kSecond);
      while (!seen.mapped && !deadline.passed()) {
        uint64_t entry = 0;
        (void)!::pread(pagemap.get(), &entry, sizeof entry, static_cast<off_t>(at / kPage * 8));
        seen.mapped = entry >> 63 != 0;
      }
      seen.stored = store64(at, 9).cause() == Fault::kNone;
      loader.join();
      return seen;
    };
    for (uint64_t page = 0; page < kPages; ++page) {
      const Seen seen = peer.run(store_meanwhile, import.at + page * kPage);
      REQUIRE(seen.mapped);
      REQUIRE(seen.stored);
      REQUIRE(wmb(peer).ok());
      CHECK(load(home, exported.at + page * kPage).value == 9);
    }
  }
}

}  // namespace

}  // namespace cmi::test::kernels_nodes_test
