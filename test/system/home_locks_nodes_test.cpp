// Two segments of one home: long work on one of them does not hold up the other.
#include <cmi/ofi/cmi_impl.h>
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>

#include "core/base/clock.hpp"
#include "support/passages.hpp"
#include "system/calls.hpp"

namespace cmi::test::home_locks_nodes_test {

namespace {

constexpr uint64_t kRegion = 512 * kPage;       // of the directory
constexpr uint64_t kPartOfScan = 8192 * kPage;  // Scan::kPart
constexpr uint64_t kOfOthers = kRegion;         // where one importer alone has anything
constexpr uint64_t kOfNobody = 2 * kRegion;     // where no importer has anything

void await_passages(const std::string& counts, const std::string& point, uint64_t times) {
  for (const Deadline end = Deadline::in(20 * kSecond); !end.passed();) {
    const Passages all = read_passages(counts);
    if (const auto it = all.find(point); it != all.end() && it->second >= times) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  FAIL("not passed: ", point);
}

// A home with two segments, and what it is held up at until go_on().
struct Home {
  explicit Home(const std::string& point, const std::string& more, uint64_t size)
      : process(cluster.spawn("home", {{"CMI_FAULT_POINT", point + "#1=hold:" + goes_on + more},
                                       {"CMI_FAULT_COUNT", counts}})),
        slow(export_segment(process, size)),
        quick(export_segment(process, 4 * kRegion)) {}
  void go_on() const { std::ofstream(goes_on).put('x'); }

  Cluster cluster;
  const std::string goes_on = cluster.scratch() + "/goes-on";
  const std::string counts = cluster.scratch() + "/passages";
  Process& process;
  const Export slow, quick;
};

// What one thread of the home does with a segment of its own while the thread that serves importers
// is held up: it attaches it once more, swaps, stores, and publishes that.
struct Done {
  bool attached = false, swapped = false, stored = false, published = false;
};
Pending<Done> start_working(Process& home, const Export& at) {
  return home.start(
      [](cmi_seg seg, uint64_t view, uint64_t word) {
        Done done;
        void* const again = CMIFN(ctxt(), 10, seg_at)(ctxt(), seg, nullptr, 0);
        done.attached = again != nullptr && CMIFN(ctxt(), 10, seg_dt)(ctxt(), seg, again) == 0;
        uint64_t found = ~uint64_t{0};
        done.swapped = CMIFN(ctxt(), 10, atm_cas)(ctxt(), reinterpret_cast<uint64_t*>(word), 0, 1,
                                                  &found) == 0 &&
                       found == 0;
        done.stored = store64(view, 7).cause() == Fault::kNone;
        done.published = CMIFN(ctxt(), 10, wmb_fn)(ctxt()) == 0;
        return done;
      },
      at.seg, at.at, at.at + kOfNobody);
}

TEST_SUITE("home_locks") {
  // The home's service thread is held up while it applies a diff to one segment. An importer that
  // is stopped keeps a barrier of the home waiting, which serves importers meanwhile.
  TEST_CASE("a_diff_that_takes_long_does_not_hold_up_another_segment") {
    Home home("publish_before_page", "", 16 * kPage);
    Process& writer = home.cluster.spawn("writer");
    Process& reader = home.cluster.spawn("reader");
    Process& other = home.cluster.spawn("other");
    const Import slow = import_segment(writer, home.slow);
    const Import cached = import_segment(reader, home.quick);
    // Its lifeline is accepted by the service thread.
    REQUIRE(import_segment(other, home.slow).at != 0);
    REQUIRE(load(reader, cached.at).cause() == Fault::kNone);

    REQUIRE(store(writer, slow.at, 5).cause() == Fault::kNone);
    auto published = writer.start([] { return CMIFN(ctxt(), 10, wmb_fn)(ctxt()) == 0; });
    await_passages(home.counts, "publish_before_page", 1);
    reader.stop();
    auto working = start_working(home.process, home.quick);

    // An import, a miss, stores with a barrier, a swap.
    const Import import = import_segment(other, home.quick);
    const uint64_t at = import.at + kOfOthers;
    CHECK(load(other, at).cause() == Fault::kNone);
    CHECK(publish(other, at + kPage, 6));
    CHECK(atm_cas(other, at + 2 * kPage, 0, 9).swapped);

    reader.signal(SIGCONT);
    const Done done = working.get();
    CHECK(done.attached);
    CHECK(done.swapped);
    CHECK(done.stored);
    CHECK(done.published);
    CHECK(load(home.process, home.quick.at + kOfOthers + kPage).value == 6);
    CHECK(load(home.process, home.quick.at + kOfOthers + 2 * kPage).value == 9);
    // All of that was before the diff.
    CHECK(load(home.process, home.slow.at).value == 0);
    home.go_on();
    CHECK(published.get());
    CHECK(load(home.process, home.slow.at).value == 5);
    CHECK(load(reader, cached.at).value == 7);
  }

  // A barrier at home is held up between two parts of its scan. Meanwhile the segment's lock is
  // free; but what was found is not published yet, and so another barrier waits for this one.
  TEST_CASE("between_the_parts_of_a_scan_others_go_on_and_barriers_wait") {
    Home home("home_scan_between_parts", ";mutate_timer_takes_nothing=fail",
              kPartOfScan + 2 * kRegion);
    Process& reader = home.cluster.spawn("reader");
    const Import import = import_segment(reader, home.slow);
    // All of it is looked at.
    const uint64_t held = reader.run(
        [](uint64_t begin, uint64_t size, uint64_t step) {
          uint64_t good = 0;
          for (uint64_t at = begin; at < begin + size; at += step) {
            good += load64(at).cause() == Fault::kNone ? 1 : 0;
          }
          return good;
        },
        import.at, home.slow.size, kRegion);
    REQUIRE(held == home.slow.size / kRegion);

    struct Threads {
      bool first = false, second = false, early = false;
    };
    struct Path {
      std::array<char, 256> name{};
    } path;
    home.goes_on.copy(path.name.data(), path.name.size() - 1);
    auto both = home.process.start(
        [](uint64_t at, Path hold) {
          Threads threads;
          const auto barrier = [] {
            CMIFN(ctxt(), 10, ini_th)(ctxt());
            return CMIFN(ctxt(), 10, wmb_fn)(ctxt()) == 0;
          };
          *reinterpret_cast<volatile uint64_t*>(at) = 4;
          std::thread first([&] { threads.first = barrier(); });
          // The second one comes when the test says that the first is held up.
          while (!called_back()) std::this_thread::yield();
          std::thread second([&] {
            threads.second = barrier();
            threads.early = !std::ifstream(hold.name.data()).good();
          });
          first.join();
          second.join();
          return threads;
        },
        home.slow.at, path);
    await_passages(home.counts, "home_scan_between_parts", 1);
    home.process.nudge();
    await_passages(home.counts, "home_scan_between_parts", 2);
    CHECK(load(reader, import.at).value == 0);
    CHECK(load(reader, import.at + kPage).cause() == Fault::kNone);
    home.go_on();
    const Threads threads = both.get();
    CHECK(threads.first);
    CHECK(threads.second);
    CHECK_FALSE(threads.early);
    CHECK(load(reader, import.at).value == 4);
  }
}

}  // namespace

}  // namespace cmi::test::home_locks_nodes_test
