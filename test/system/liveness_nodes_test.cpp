// Peers that die, are stopped and come back: what the others notice, what is lost and what is not.
// CMI_DEAD_AFTER makes silence count as death soon, or never, so that each test knows by what a
// death was found out.
#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "core/base/clock.hpp"
#include "support/passages.hpp"
#include "system/calls.hpp"
#include "system/happenings.hpp"

namespace cmi::test::liveness_nodes_test {

namespace {

// Longer than any test: who is found dead was found so by proof.
const Env kNever = {{"CMI_DEAD_AFTER", "3600000"}};
const Env kSoon = {{"CMI_DEAD_AFTER", "2000"}};

Env tracing(const Cluster& cluster, const Env& more) {
  Env env = more;
  env.push_back({"CMI_TRACE", "mem:info"});
  env.push_back({"CMI_TRACE_FILE", cluster.scratch() + "/trace"});
  return env;
}

int lines_with(const Cluster& cluster, const std::string& text) {
  std::ifstream file(cluster.scratch() + "/trace");
  int found = 0;
  for (std::string line; std::getline(file, line);) {
    found += line.find(text) != std::string::npos;
  }
  return found;
}

// Waits until the trace has so many lines with this in them.
bool traced(const Cluster& cluster, const std::string& text, int times = 1) {
  const Deadline deadline = Deadline::in(20 * kSecond);
  do {
    if (lines_with(cluster, text) >= times) return true;
    ::usleep(2000);
  } while (!deadline.passed());
  return false;
}

// Loads again and again until that is what comes of it; what came last.
int load_until_cause(Process& process, uint64_t at, int cause) {
  return process.run(
      [](uint64_t a, int wanted) {
        const Deadline deadline = Deadline::in(20 * kSecond);
        int last = load64(a).cause();
        for (; last != wanted && !deadline.passed(); last = load64(a).cause()) ::usleep(200);
        return last;
      },
      at, cause);
}

// As load(), but a handler that waits for the network: it returns from TRANSIENT, and only from
// that.
Access patient_load(Process& process, uint64_t at) {
  return process.run(
      [](uint64_t a) {
        set_on_fault(
            [](const Fault& f) { return f.error == CMI_ERROR_TRANSIENT && f.times < 100; });
        const Access result = load64(a);
        set_on_fault(nullptr);
        return result;
      },
      at);
}

// How many threads of a child have loaded. In memory that the test and its children share: made
// before they are.
class Loaders {
 public:
  Loaders() {
    void* const at =
        ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    count_ = new (at) std::atomic<uint32_t>(0);
  }
  ~Loaders() { ::munmap(count_, kPage); }
  Loaders(const Loaders&) = delete;
  Loaders& operator=(const Loaders&) = delete;

  std::atomic<uint32_t>* count() { return count_; }
  bool await(uint32_t threads) const {
    for (const Deadline end = Deadline::in(20 * kSecond); !end.passed(); ::usleep(200)) {
      if (*count_ == threads) return true;
    }
    return false;
  }

 private:
  std::atomic<uint32_t>* count_ = nullptr;
};

constexpr uint32_t kLoaders = 2;

// In the child: threads load a word each of one page, until that raises something. When the last
// good load of them began; 0 where one of them had none.
Pending<Nanos> start_loading(Process& peer, uint64_t at, Loaders& loaders) {
  return peer.start(
      [](uint64_t page, std::atomic<uint32_t>* loaded) {
        std::array<Nanos, kLoaders> last{};
        const auto load_on = [&](size_t me) {
          for (const Deadline deadline = Deadline::in(60 * kSecond); !deadline.passed();) {
            const Nanos begun = now();
            if (load64(page + 8 * me).cause() != Fault::kNone) return;
            if (std::exchange(last[me], begun) == 0) ++*loaded;
          }
        };
        std::thread second([&] {
          if (CMIFN(ctxt(), 10, ini_th)(ctxt()) != 0) return;
          CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
          load_on(1);
          CMIFN(ctxt(), 10, fini)(ctxt());
        });
        load_on(0);
        second.join();
        return *std::min_element(last.begin(), last.end()) == 0
                   ? Nanos{0}
                   : *std::max_element(last.begin(), last.end());
      },
      at, loaders.count());
}

// All of the process has one processor, and its service thread that alone which the others leave.
void starve_service_thread(const Process& process) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  bool found = false;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process.pid()) + "/task")) {
    const auto thread = static_cast<pid_t>(std::stol(entry.path().filename().string()));
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    REQUIRE(::sched_setaffinity(thread, sizeof one, &one) == 0);
    const sched_param none{};
    if (name != "cmi-service") continue;
    found = true;
    REQUIRE(::sched_setscheduler(thread, SCHED_IDLE, &none) == 0);
  }
  REQUIRE(found);
}

// An importer that loads a page all the time is stopped as a whole, its token is revoked, and it is
// woken. For how long it goes on loading.
Nanos loads_on_for(bool timers) {
  const Env env = {{"CMI_TEST_DEFAULT_TIMEOUT", "1"}, {"CMI_DEAD_AFTER", "2000"}};
  Loaders loaders;
  Cluster cluster;
  Process& home = cluster.spawn("home", env);
  Process& peer = cluster.spawn_bare("peer", env);
  if (!timers) {
    REQUIRE(peer.run([] {
      const rlimit none{0, 0};
      return ::setrlimit(RLIMIT_SIGPENDING, &none) == 0;
    }));
  }
  REQUIRE(ini(peer).ok());
  const Export exported = export_segment(home);
  const Import import = import_segment(peer, exported);
  REQUIRE(load(peer, import.at).cause() == Fault::kNone);
  auto loading = start_loading(peer, import.at, loaders);
  REQUIRE(loaders.await(kLoaders));
  peer.stop();
  starve_service_thread(peer);
  const Answer revoked = tok_del(home, exported.token);
  CHECK_MESSAGE(revoked.ok(), revoked);
  const Nanos woken = now();
  peer.signal(SIGCONT);
  const Nanos last = loading.get(60);
  REQUIRE(last != 0);
  return std::max<Nanos>(last - woken, 0);
}

struct Pair {
  Cluster cluster;
  Process& home;
  Process& peer;
  Export exported;
  Import import;

  Pair(const Env& home_env, const Env& peer_env)
      : home(cluster.spawn("home", tracing(cluster, home_env))),
        peer(cluster.spawn("peer", peer_env)),
        exported(export_segment(home, 16 * kPage, kAllRights, CMI_SEG_CLIENT_CONSIST)),
        import(import_segment(peer, exported)) {
    REQUIRE(publish(home, exported.at, 1));
    REQUIRE(load(peer, import.at).value == 1);
  }
};

TEST_SUITE("liveness") {
  TEST_CASE("an_idle_importer_learns_that_its_home_was_killed") {
    Pair pair(kNever, kNever);
    pair.home.kill();
    // The page is cached: nothing is asked of the home, and yet it is known.
    CHECK(load_until_cause(pair.peer, pair.import.at, CMI_ERROR_SINVAL) == CMI_ERROR_SINVAL);
    CHECK(store(pair.peer, pair.import.at + kPage, 1).cause() == CMI_ERROR_SINVAL);
    CHECK(atm_cas(pair.peer, pair.import.at, 1, 2).fault.cause() == CMI_ERROR_SINVAL);
  }

  TEST_CASE("an_idle_home_learns_that_an_importer_was_killed") {
    Pair pair(kNever, kNever);
    pair.peer.kill();
    CHECK(traced(pair.cluster, "gone: its context has ended"));
    CHECK(publish(pair.home, pair.exported.at, 2));
  }

  TEST_CASE("a_home_that_is_far_behind_gives_signs_of_life_before_all_else") {
    constexpr uint64_t kPages = 2048;
    Cluster cluster;
    // Requests that lie before a sign of life take ten times as long as the importer is patient.
    Process& home = cluster.spawn("home", {{"CMI_FAULT_POINT", "server_before_reply=delay:20000"}});
    Process& idle = cluster.spawn("idle", {{"CMI_DEAD_AFTER", "1000"}});
    Process& busy = cluster.spawn("busy", {{"CMI_FAULT_POINT", "no_aging=fail"}});
    const Export exported =
        export_segment(home, kPages * kPage, kAllRights, CMI_SEG_CLIENT_CONSIST);
    const Import cached = import_segment(idle, exported), stored = import_segment(busy, exported);
    REQUIRE(load(idle, cached.at).cause() == Fault::kNone);
    auto flood = busy.start(
        [](uint64_t at) {
          auto* words = reinterpret_cast<volatile uint64_t*>(at);
          for (uint64_t i = kPage / 8; i < kPages * kPage / 8; i += 2) words[i] = i;
          return ::cmi_wmb() == 0;
        },
        stored.at);
    CHECK(flood.get(60));
    CHECK(load(idle, cached.at).cause() == Fault::kNone);
    CHECK(load(idle, cached.at + kPage).value == kPage / 8);
  }

  TEST_CASE("a_context_that_ends_in_good_order_says_goodbye") {
    Pair pair(kNever, kNever);
    REQUIRE(fini(pair.peer).ok());
    CHECK(traced(pair.cluster, "gone: said goodbye"));
    // The process comes back as another context and shares again.
    REQUIRE(ini(pair.peer).ok());
    const Import again = import_segment(pair.peer, pair.exported);
    CHECK(load(pair.peer, again.at).value == 1);
    CHECK(publish(pair.peer, again.at, 2));
    CHECK(load(pair.home, pair.exported.at).value == 2);
  }

  TEST_CASE("importers_learn_that_their_home_has_said_goodbye") {
    Pair pair(kNever, kNever);
    REQUIRE(fini(pair.home).ok());
    CHECK(load_until_cause(pair.peer, pair.import.at, CMI_ERROR_SINVAL) == CMI_ERROR_SINVAL);
  }

  TEST_CASE("a_home_that_ends_waits_for_nobody_who_has_nothing_of_it") {
    Cluster cluster;
    Process& home = cluster.spawn("home", tracing(cluster, {}));
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    (void)import_bare(peer, exported);
    peer.stop();
    REQUIRE(seg_rm(home, exported.seg).ok());
    REQUIRE(seg_dt(home, exported.seg, exported.at).ok());
    REQUIRE(fini(home).ok());
    CHECK(lines_with(cluster, "the end of the context: an importer did not answer") == 0);
    // Without the peer's answer there would be such a line: where a segment is still there.
    REQUIRE(ini(home).ok());
    peer.signal(SIGCONT);
    const Export another = export_segment(home);
    (void)import_bare(peer, another);
    peer.stop();
    REQUIRE(fini(home).ok());
    CHECK(lines_with(cluster, "the end of the context: an importer did not answer") == 1);
    peer.signal(SIGCONT);
  }

  TEST_CASE("without_lifelines_a_home_that_ended_is_found_out_by_the_answers_that_it_owes") {
    const Env bare = {{"CMI_FAULT_POINT", "watch_no_lifelines=fail"}, {"CMI_DEAD_AFTER", "1500"}};
    Pair pair(bare, bare);
    pair.home.kill();
    // Nothing tells of it but a question; the page that is cached would be read for ever.
    CHECK(load_until_cause(pair.peer, pair.import.at + kPage, CMI_ERROR_SINVAL) ==
          CMI_ERROR_SINVAL);
    CHECK(await_happening(pair.peer).type == CMI_EVENT_HCTXT_DOWN);
    CHECK(load(pair.peer, pair.import.at).cause() == CMI_ERROR_SINVAL);
  }

  TEST_CASE("without_lifelines_an_importer_that_owes_an_answer_holds_up_nobody_for_long") {
    const Env bare = {{"CMI_FAULT_POINT", "watch_no_lifelines=fail"}, {"CMI_DEAD_AFTER", "1500"}};
    Pair pair(bare, bare);
    pair.peer.stop();  // listens on, as far as its node can tell
    CHECK(publish(pair.home, pair.exported.at, 2));
    CHECK(await_happening(pair.home).type == CMI_EVENT_RCTXT_DOWN);
    pair.peer.signal(SIGCONT);
    CHECK(load_until_cause(pair.peer, pair.import.at + kPage, CMI_ERROR_SINVAL) ==
          CMI_ERROR_SINVAL);
    CHECK(load(pair.peer, pair.import.at).cause() == CMI_ERROR_SINVAL);
  }

  PROCESS_CASE("a_home_that_is_slow_to_answer_is_imported_from_and_one_that_is_gone_is_not") {
    Cluster cluster;
    Process& home =
        cluster.spawn("home", {{"CMI_FAULT_POINT", "server_before_welcome#1=delay:1500000"}});
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    REQUIRE(publish(home, exported.at, 3));
    const Import import = import_segment(peer, exported);
    CHECK(load(peer, import.at).value == 3);
    Process& silent = cluster.spawn("silent");
    const Export other = export_segment(silent);
    silent.stop();
    // Its listener answers, so the handle is a good one: once more, later.
    CHECK(seg_imp(peer, other.handle).failed(CMI_ERR_INVAL));
    silent.signal(SIGCONT);
    CHECK(seg_imp(peer, other.handle).ok());
    silent.kill();
    Process& late = cluster.spawn("late");
    CHECK(seg_imp(late, other.handle).failed(CMI_ERR_INVAL));
  }

  PROCESS_CASE("a_child_of_a_killed_home_does_not_make_it_look_alive") {
    Pair pair(kNever, kNever);
    const pid_t child = pair.home.run([] {
      const pid_t pid = ::fork();
      if (pid != 0) return pid;
      for (;;) ::pause();
    });
    REQUIRE(child > 0);
    pair.home.kill();
    CHECK(load_until_cause(pair.peer, pair.import.at, CMI_ERROR_SINVAL) == CMI_ERROR_SINVAL);
    CHECK(::kill(child, SIGKILL) == 0);
  }

  TEST_CASE("a_load_from_a_stopped_home_raises_transient_and_succeeds_when_it_is_back") {
    Pair pair(kNever, kNever);
    REQUIRE(publish(pair.home, pair.exported.at + kPage, 7));
    REQUIRE(store(pair.peer, pair.import.at + 8, 5).cause() == Fault::kNone);
    pair.home.stop();
    REQUIRE(store(pair.peer, pair.import.at + 16, 6).cause() == Fault::kNone);  // cached
    CHECK(load(pair.peer, pair.import.at + kPage).cause() == CMI_ERROR_TRANSIENT);
    auto waiting = pair.peer.start(
        [](uint64_t a) {
          set_on_fault([](const Fault& f) { return f.error == CMI_ERROR_TRANSIENT; });
          const Access result = load64(a);
          set_on_fault(nullptr);
          return result;
        },
        pair.import.at + kPage);
    pair.home.signal(SIGCONT);
    CHECK(waiting.get().value == 7);
    // No store was lost, whether it was made before the silence or in it.
    CHECK(wmb(pair.peer).ok());
    CHECK(load(pair.home, pair.exported.at + 8).value == 5);
    CHECK(load(pair.home, pair.exported.at + 16).value == 6);
    CHECK(publish(pair.home, pair.exported.at, 9));
    CHECK(load(pair.peer, pair.import.at).value == 9);
  }

  TEST_CASE("an_importer_stops_reading_what_it_has_cached_before_its_home_can_hold_it_for_dead") {
    // The home is stopped, so it declares nobody dead; the importer cannot know that.
    Pair pair(kSoon, kNever);
    REQUIRE(store(pair.peer, pair.import.at + 8, 5).cause() == Fault::kNone);
    pair.home.stop();
    REQUIRE(store(pair.peer, pair.import.at + 16, 6).cause() == Fault::kNone);
    CHECK(load_until_cause(pair.peer, pair.import.at, CMI_ERROR_TRANSIENT) == CMI_ERROR_TRANSIENT);
    CHECK(store(pair.peer, pair.import.at, 2).cause() == CMI_ERROR_TRANSIENT);
    pair.home.signal(SIGCONT);
    // It all comes back, and nothing was lost.
    CHECK(patient_load(pair.peer, pair.import.at).value == 1);
    CHECK(wmb(pair.peer).ok());
    CHECK(load(pair.home, pair.exported.at + 8).value == 5);
    CHECK(load(pair.home, pair.exported.at + 16).value == 6);
    CHECK(publish(pair.home, pair.exported.at, 3));
    CHECK(load(pair.peer, pair.import.at).value == 3);
  }

  TEST_CASE("what_an_importer_has_cached_is_read_past_its_time_when_it_stays_mapped") {
    const auto load_in_silence = [](const char* mutation) {
      Cluster cluster;
      const std::string counts = cluster.scratch() + "/passages";
      Process& home = cluster.spawn("home", kSoon);
      Process& peer = cluster.spawn(
          "peer", {kNever[0], {"CMI_FAULT_POINT", mutation}, {"CMI_FAULT_COUNT", counts}});
      const Import import = import_segment(peer, export_segment(home));
      REQUIRE(load(peer, import.at).cause() == Fault::kNone);
      home.stop();
      for (const Deadline end = Deadline::in(20 * kSecond);
           read_passages(counts)["lease_expired"] == 0;) {
        REQUIRE(!end.passed());
        ::usleep(2000);
      }
      const int cause = load(peer, import.at).cause();
      home.signal(SIGCONT);
      return cause;
    };
    CHECK(load_in_silence("") == CMI_ERROR_TRANSIENT);
    CHECK(load_in_silence("mutate_kept_without_lease=fail") == Fault::kNone);
  }

  // The kernel tells each of its threads before its next load that the lease is over, however long
  // the service thread takes to run.
  PROCESS_CASE("an_importer_that_is_stopped_and_woken_loads_nothing_of_what_a_call_has_ended") {
    CHECK(loads_on_for(true) == 0);
  }

  // It goes on until the service thread has the processor, unless that was the first to have it.
  PROCESS_CASE("an_importer_without_timers_that_is_woken_loads_on_for_a_while") {
    Nanos longest = 0;
    for (int i = 0; i < 8 && longest < kMilli; ++i) {
      const Nanos on = loads_on_for(false);
      MESSAGE("it loads on for so many microseconds: ", on / kMicro);
      CHECK(on < 10 * kSecond);
      longest = std::max(longest, on);
    }
    CHECK(longest >= kMilli);
  }

  TEST_CASE("an_importer_that_is_stopped_for_less_than_the_verdict_loses_nothing") {
    Pair pair(kNever, kNever);
    REQUIRE(store(pair.peer, pair.import.at + 8, 5).cause() == Fault::kNone);
    pair.peer.stop();
    CHECK(traced(pair.cluster, "is unreachable: silent"));
    auto publishing = pair.home.start(
        [](uint64_t at) {
          store64(at, 2);
          return CMIFN(ctxt(), 10, wmb_fn)(ctxt());
        },
        pair.exported.at);
    pair.peer.signal(SIGCONT);
    CHECK(publishing.get() == 0);
    CHECK(traced(pair.cluster, "is reachable again"));
    CHECK(load(pair.peer, pair.import.at).value == 2);
    CHECK(wmb(pair.peer).ok());
    CHECK(load(pair.home, pair.exported.at + 8).value == 5);
  }

  TEST_CASE("nothing_of_an_importer_that_comes_back_after_its_verdict_is_applied") {
    Pair pair(kSoon, kNever);
    Process& third = pair.cluster.spawn("third", kNever);
    const Import other = import_segment(third, pair.exported);
    auto storing = pair.peer.start(
        [](uint64_t at) {
          // Until it is told that it is over, with stores under way all the time.
          const Deadline deadline = Deadline::in(20 * kSecond);
          int cause = Fault::kNone;
          for (uint64_t i = 100; cause == Fault::kNone || cause == CMI_ERROR_TRANSIENT; ++i) {
            cause = store64(at + kPage, i).cause();
            if (i % 64 == 0) CMIFN(ctxt(), 10, wmb_fn)(ctxt());
            if (deadline.passed()) break;
          }
          return cause;
        },
        pair.import.at);
    REQUIRE(load_until(third, other.at + 2 * kPage, 0) == 0);
    pair.peer.stop();
    CHECK(traced(pair.cluster, "gone: silent"));
    // It is fenced when the client hears of it.
    CHECK(await_happening(pair.home).type == CMI_EVENT_RCTXT_DOWN);
    // Nobody waits for it any more, and what the others store now is newer than all it has.
    CHECK(publish(third, other.at + kPage, 42));
    CHECK(load(pair.home, pair.exported.at + kPage).value == 42);
    CHECK(publish(pair.home, pair.exported.at, 43));
    pair.peer.signal(SIGCONT);
    CHECK(storing.get() == CMI_ERROR_SINVAL);
    // It may be in the middle of taking its other pages out of use.
    CHECK(load_until_cause(pair.peer, pair.import.at, CMI_ERROR_SINVAL) == CMI_ERROR_SINVAL);
    CHECK(load(third, other.at + kPage).value == 42);
    CHECK(load(pair.home, pair.exported.at + kPage).value == 42);
  }

  TEST_CASE("a_home_that_comes_back_after_its_verdict_is_left_alone") {
    Pair pair(kNever, kSoon);
    REQUIRE(store(pair.peer, pair.import.at + 8, 5).cause() == Fault::kNone);
    REQUIRE(wmb(pair.peer).ok());
    pair.home.stop();
    CHECK(load_until_cause(pair.peer, pair.import.at, CMI_ERROR_SINVAL) == CMI_ERROR_SINVAL);
    pair.home.signal(SIGCONT);
    // It learns that this importer has given it up, and does not wait for it.
    CHECK(traced(pair.cluster, "gone: it holds us for dead"));
    CHECK(publish(pair.home, pair.exported.at, 2));
    CHECK(load(pair.home, pair.exported.at + 8).value == 5);
    CHECK(load(pair.peer, pair.import.at).cause() == CMI_ERROR_SINVAL);
  }

  TEST_CASE("one_of_ten_importers_fails_and_the_others_notice_nothing") {
    Cluster cluster;
    Process& home = cluster.spawn("home", tracing(cluster, kNever));
    const Export exported = export_segment(home);
    struct Traffic {
      uint64_t rounds, failures;
    };
    constexpr uint64_t kPeers = 10;
    std::vector<Process*> peers;
    std::vector<Pending<Traffic>> pending;
    for (uint64_t i = 0; i < kPeers; ++i) {
      peers.push_back(&cluster.spawn("peer" + std::to_string(i), kNever));
      const Import import = import_segment(*peers.back(), exported);
      // Each has a page of its own, and reads one that all of them read.
      pending.push_back(peers.back()->start(
          [](uint64_t at, uint64_t mine) {
            Traffic seen{0, 0};
            while (!called_back() || seen.rounds < 20) {
              ++seen.rounds;
              seen.failures += store64(at + mine, seen.rounds).cause() != Fault::kNone;
              seen.failures += CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0;
              seen.failures += load64(at + mine).value != seen.rounds;
              seen.failures += load64(at).cause() != Fault::kNone;
              ::usleep(1000);
            }
            return seen;
          },
          import.at, (i + 1) * kPage));
    }
    for (uint64_t i = 1; i <= kPeers; ++i) {
      REQUIRE(home.run(
          [](uint64_t at) {
            const Deadline deadline = Deadline::in(20 * kSecond);
            while (load64(at).value < 3 && !deadline.passed()) ::usleep(1000);
            return load64(at).value >= 3;
          },
          exported.at + i * kPage));
    }
    peers[3]->kill();
    CHECK(traced(cluster, "gone: its context has ended"));
    CHECK(publish(home, exported.at, 77));
    for (uint64_t i = 0; i < kPeers; ++i) {
      if (i == 3) continue;
      const Traffic seen = pending[i].finish();
      CHECK(seen.failures == 0);
      CHECK(load(home, exported.at + (i + 1) * kPage).value == seen.rounds);
    }
  }

  TEST_CASE("one_of_two_homes_fails_and_the_other_is_used_on") {
    Pair pair(kNever, kNever);
    Process& other = pair.cluster.spawn("other", kNever);
    const Export kept = export_segment(other);
    const Import good = import_segment(pair.peer, kept);
    bool killed = false;
    SUBCASE("killed") {
      pair.home.kill();
      killed = true;
    }
    SUBCASE("stopped") { pair.home.stop(); }
    for (uint64_t i = 1; i <= 20; ++i) {
      REQUIRE(publish(pair.peer, good.at, i));
      REQUIRE(load(other, kept.at).value == i);
    }
    const int cause = load(pair.peer, pair.import.at + kPage).cause();
    CHECK(cause == (killed ? CMI_ERROR_SINVAL : CMI_ERROR_TRANSIENT));
    CHECK(publish(pair.peer, good.at, 21));
    pair.home.signal(SIGCONT);
  }
}

}  // namespace

}  // namespace cmi::test::liveness_nodes_test
