// Mutations that need more than a program of loads and stores: imports that come and go, views that
// end, writers that die, signal handlers. Each scene is played on a sound library and a broken one.
#include <cmi/ofi/cmi_impl.h>
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/time.h>

#include <string>

#include "core/base/clock.hpp"
#include "litmus/lab.hpp"

namespace cmi::test::scenes_test {

namespace {

// A scene played several times on one cluster; how often it went wrong.
using Scene = int (*)(Cluster& cluster, const Env& env);

// `also`: a fault point that is set in both.
void check_scene(Scene scene, const std::string& mutation, const std::string& also = "") {
  const std::string common = also.empty() ? "" : also + "=fail";
  {
    Cluster cluster;
    CHECK(scene(cluster, also.empty() ? Env{} : Env{{"CMI_FAULT_POINT", common}}) == 0);
  }
  Cluster cluster;
  const std::string points = mutation + "=fail" + (also.empty() ? "" : ";" + common);
  CHECK_MESSAGE(scene(cluster, {{"CMI_FAULT_POINT", points}}) > 0, mutation, " is not seen");
}

// A store at home right after the first import of its segment.
int store_after_import(Cluster& cluster, const Env& env) {
  Process& home = cluster.spawn("home", env);
  Process& peer = cluster.spawn("peer", env);
  int missed = 0;
  for (int i = 0; i < 20; ++i) {
    const Export exported = export_segment(home, kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).value == 0);
    REQUIRE(publish(home, exported.at, 1));
    missed += load(peer, import.at).value != 1;
  }
  return missed;
}

// Stores through a view of an import that ends before any barrier, and before the timer.
int store_and_detach_import(Cluster& cluster, const Env& env) {
  std::string points = "no_aging=fail";
  for (const auto& [name, value] : env) points += ";" + value;
  Process& home = cluster.spawn("home");
  Process& peer = cluster.spawn("peer", {{"CMI_FAULT_POINT", points}});
  Process& third = cluster.spawn("third");
  const Export exported = export_segment(home, kPage);
  const Import import = import_segment(peer, exported);
  const Import other = import_segment(third, exported);
  int missed = 0;
  for (uint64_t i = 1; i <= 20; ++i) {
    const Answer view = seg_at(peer, import.seg);
    REQUIRE(view.ok());
    REQUIRE(load(third, other.at).cause() == Fault::kNone);
    REQUIRE(store(peer, view.at(), i).cause() == Fault::kNone);
    REQUIRE(seg_dt(peer, import.seg, view.at()).ok());
    missed += load(home, exported.at).value != i;
    missed += load(third, other.at).value != i;
  }
  return missed;
}

// Stores through a view of the home process that ends before any barrier.
int store_and_detach(Cluster& cluster, const Env& env) {
  Process& home = cluster.spawn("home", env);
  Process& peer = cluster.spawn("peer", env);
  const Export exported = export_segment(home, kPage);
  const Import import = import_segment(peer, exported);
  int missed = 0;
  for (uint64_t i = 1; i <= 20; ++i) {
    const Answer view = seg_at(home, exported.seg);
    REQUIRE(view.ok());
    REQUIRE(load(peer, import.at).value == i - 1);
    REQUIRE(home.run(
        [](cmi_seg seg, uint64_t at, uint64_t value) {
          *reinterpret_cast<volatile uint64_t*>(at) = value;
          return CMIFN(ctxt(), 10, seg_dt)(ctxt(), seg, reinterpret_cast<void*>(at)) == 0;
        },
        exported.seg, view.at(), i));
    REQUIRE(wmb(home).ok());
    missed += load(peer, import.at).value != i;
    REQUIRE(publish(home, exported.at, i));  // whatever was missed is known now
    REQUIRE(publish(home, exported.at + 8, i));
  }
  return missed;
}

// Stores of another process of the home node that is killed before anybody looked for them.
int store_and_die(Cluster& cluster, const Env& env) {
  Process& home = cluster.spawn("home", env);
  Process& peer = cluster.spawn("peer", env);
  const Export exported = export_segment(home, kPage);
  const Import import = import_segment(peer, exported);
  int missed = 0;
  for (uint64_t i = 0; i < 4; ++i) {
    Process& second = cluster.spawn("home");
    const Answer view = seg_at(second, exported.seg);
    REQUIRE(view.ok());
    REQUIRE(load(peer, import.at + 8 * i).value == 0);
    second.start(
        [](uint64_t at) {
          *reinterpret_cast<volatile uint64_t*>(at) = 1;
          ::raise(SIGKILL);
        },
        view.at() + 8 * i);
    REQUIRE(died_by(second.wait_end(), SIGKILL));
    REQUIRE(wmb(home).ok());
    missed += load(peer, import.at + 8 * i).value != 1;
  }
  return missed;
}

// A process that has attached the segment of another one of its node publishes its stores.
int store_beside(Cluster& cluster, const Env& env) {
  Process& home = cluster.spawn("home");
  Process& beside = cluster.spawn("home", env);
  Process& peer = cluster.spawn("peer");
  const Export exported = export_segment(home, kPage);
  const Answer view = seg_at(beside, exported.seg);
  REQUIRE(view.ok());
  const Import import = import_segment(peer, exported);
  int missed = 0;
  for (uint64_t i = 1; i <= 40; ++i) {
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    REQUIRE(publish(beside, view.at(), i));
    missed += load(peer, import.at).value != i;
  }
  return missed;
}

// A handler of the client's that stores to the page that a barrier of its own thread works on.
volatile uint64_t* g_touched = nullptr;

int store_in_handler(Cluster& cluster, const Env& env) {
  Process& home = cluster.spawn("home");
  Process& peer = cluster.spawn("peer", env);
  const Export exported = export_segment(home, kPage);
  const Import import = import_segment(peer, exported);
  auto running = peer.start(
      [](uint64_t view) {
        g_touched = reinterpret_cast<volatile uint64_t*>(view);
        struct sigaction action {};
        action.sa_handler = [](int) { *g_touched = *g_touched + 1; };
        ::sigaction(SIGALRM, &action, nullptr);
        const itimerval often{{0, 300}, {0, 300}};
        const itimerval never{};
        ::setitimer(ITIMER_REAL, &often, nullptr);
        int failed = 0;
        for (uint64_t i = 1; i <= 500; ++i) {
          g_touched[1] = i;
          failed += cmi_wmb() != 0;
        }
        ::setitimer(ITIMER_REAL, &never, nullptr);
        ::signal(SIGALRM, SIG_DFL);
        return failed;
      },
      import.at);
  try {
    const bool broken = env.at(0).second.find("mutate_") != std::string::npos;
    return running.get(broken ? 6 : 2 * kSeconds);  // beside others it takes long
  } catch (const ChildFailed&) {
    peer.kill();  // it waits for itself
    return 1;
  }
}

TEST_SUITE("scenes") {
  TEST_CASE("a_store_at_home_after_an_import_is_missed_when_views_are_armed_late") {
    check_scene(store_after_import, "mutate_late_arming");
  }
  TEST_CASE("a_store_through_a_view_that_ended_is_missed_when_it_was_not_scanned") {
    check_scene(store_and_detach, "mutate_unmap_unscanned");
  }
  TEST_CASE("a_store_through_a_view_of_an_import_that_ended_is_missed_when_it_was_not_published") {
    check_scene(store_and_detach_import, "mutate_detach_publishes_nothing");
  }
  TEST_CASE("a_store_of_a_killed_process_at_home_is_missed_when_it_is_forgotten") {
    check_scene(store_and_die, "mutate_dead_writer_forgotten");
  }
  TEST_CASE("a_store_of_a_neighbour_is_missed_when_its_barrier_asks_nobody") {
    check_scene(store_beside, "mutate_neighbour_not_asked");
  }
  TEST_CASE("a_handler_that_touches_a_page_hangs_when_it_may_interrupt_a_barrier") {
    // A hot page is none that a barrier holds: a handler's store to it needs no lock.
    check_scene(store_in_handler, "mutate_signals_let_in", "never_hot");
  }
}

}  // namespace

}  // namespace cmi::test::scenes_test
