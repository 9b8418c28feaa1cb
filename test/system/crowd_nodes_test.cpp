// A node of many processes: they attach, access, detach and die as it comes, and the registry is
// right all the time, as a reader sees it that shares no code with the library.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "node/node_support.hpp"
#include "support/sanitized.hpp"
#include "system/calls.hpp"

namespace cmi::test::crowd_nodes_test {

namespace {

constexpr size_t kProcesses = 64;
constexpr size_t kShared = 6;  // segments of the node: the last two are imported
constexpr size_t kHomes = 4;   // the others
// Processes that attach all of them; the others only homes. The sanitizer makes each of them large.
constexpr size_t kImporters = kSanitized ? 12 : kProcesses;
constexpr uint64_t kPagesEach = 4;

using Ids = std::array<cmi_seg, kShared>;
struct Tally {
  std::array<uint32_t, kShared> attached{};
  uint64_t accesses = 0;
  int cause = 0;  // of the last access that failed; negative: of the last call, its error
};

// Attaches, accesses and detaches the first `usable` at random; `dies_at`: the step at which it is
// killed.
Tally live(uint64_t seed, const Ids& ids, uint64_t usable, int steps, int dies_at) {
  std::mt19937_64 random(seed);
  struct Attached {
    size_t which;
    uint64_t at;
  };
  std::vector<Attached> views;
  Tally tally;
  CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
  for (int step = 0; step < steps; ++step) {
    if (step == dies_at) ::kill(::getpid(), SIGKILL);
    const uint64_t what = random() % 8;
    if (what < 3 && views.size() < 8) {
      const size_t which = random() % usable;
      // A crowded machine may keep a home from answering in time: then once more.
      const Deadline deadline = Deadline::in(20 * kSecond);
      void* at = nullptr;
      do {
        at = CMIFN(ctxt(), 10, seg_at)(ctxt(), ids[which], nullptr, 0);
      } while (at == nullptr && !deadline.passed());
      if (at == nullptr) {
        tally.cause = -static_cast<int>(cmi_get_error(ctxt()));
        continue;
      }
      views.push_back({which, reinterpret_cast<uint64_t>(at)});
      ++tally.attached[which];
    } else if (what == 3 && !views.empty()) {
      const size_t i = random() % views.size();
      --tally.attached[views[i].which];
      if (CMIFN(ctxt(), 10, seg_dt)(ctxt(), ids[views[i].which],
                                    reinterpret_cast<void*>(views[i].at)) != 0) {
        tally.cause = -static_cast<int>(cmi_get_error(ctxt()));
      }
      views.erase(views.begin() + static_cast<ptrdiff_t>(i));
    } else if (!views.empty()) {
      const uint64_t at = views[random() % views.size()].at + random() % kPagesEach * kPage;
      const bool reads = random() % 2 == 0;
      const Deadline deadline = Deadline::in(20 * kSecond);
      int cause = Fault::kNone;
      do {
        cause = reads ? load64(at).cause() : store64(at, seed).cause();
      } while (cause == CMI_ERROR_TRANSIENT && !deadline.passed());
      if (cause != Fault::kNone) tally.cause = cause;
      ++tally.accesses;
    }
  }
  return tally;
}

TEST_SUITE("crowd") {
  TEST_CASE("processes_that_come_and_die_at_random_leave_a_registry_that_is_right") {
    Cluster cluster;
    Process& far = cluster.spawn("far");
    // Who is killed may leave stores behind: they are no matter of this case.
    const Export exported =
        export_segment(far, kPagesEach * kPage, kAllRights, CMI_SEG_CLIENT_CONSIST);
    std::vector<Process*> crowd;
    {
      std::vector<Pending<Answer>> starting;
      for (size_t i = 0; i < kProcesses; ++i) crowd.push_back(&cluster.spawn_bare("crowd"));
      for (Process* p : crowd)
        starting.push_back(p->start([] { return start_context(CMI_VERNO); }));
      for (auto& s : starting) REQUIRE(s.get().ok());
    }
    // The makers are among the crowd; two of them import.
    Ids ids{};
    for (size_t i = 0; i < kShared; ++i) {
      const bool import = i >= kHomes;
      ids[i] = import ? import_segment(*crowd[i], exported).seg
                      : seg_get(*crowd[i], kPagesEach * kPage).seg();
      REQUIRE(ids[i] > 0);
    }
    const std::vector<std::string> files = cluster.files();
    const auto registry = std::find_if(files.begin(), files.end(), [&](const std::string& path) {
      return path.find("registry") != std::string::npos &&
             std::filesystem::exists(std::filesystem::path(path).parent_path() /
                                     ("seg-" + std::to_string(ids[0])));
    });
    REQUIRE(registry != files.end());
    const std::string folder = std::filesystem::path(*registry).parent_path();
    CHECK(walk_registry_in(folder, true) == "");

    constexpr int kSteps = 20;
    std::mt19937 random(20261122);
    std::vector<int> dies(kProcesses, -1);
    for (size_t i = kShared; i < kProcesses; ++i) {
      if (i % 2 == 0) dies[i] = static_cast<int>(random() % kSteps);
    }
    std::vector<Pending<Tally>> lives;
    for (size_t i = 0; i < kProcesses; ++i) {
      lives.push_back(
          crowd[i]->start([](uint64_t seed, Ids all, uint64_t usable,
                             int dies_at) { return live(seed, all, usable, kSteps, dies_at); },
                          uint64_t{i} + 1, ids, i < kImporters ? kShared : kHomes, dies[i]));
    }
    for (int i = 0; i < 20; ++i) {  // while they are at it
      CHECK(walk_registry_in(folder, false) == "");
      std::this_thread::yield();
    }
    std::array<uint32_t, kShared> attached{};
    for (auto& n : std::span(attached).last(2)) n = 1;  // import_segment() has attached it
    for (size_t i = 0; i < kProcesses; ++i) {
      CAPTURE(i);
      if (dies[i] >= 0) {
        CHECK_THROWS_AS(lives[i].get(150), ChildFailed);
        CHECK(died_by(crowd[i]->wait_end(), SIGKILL));
        continue;
      }
      const Tally tally = lives[i].get(150);
      CHECK(tally.cause == Fault::kNone);
      for (size_t k = 0; k < kShared; ++k) attached[k] += tally.attached[k];
    }
    // The dead count for nothing, reaped or not.
    for (size_t k = 0; k < kShared; ++k) {
      CAPTURE(k);
      CHECK(seg_status(*crowd[1], ids[k]).status.st_nattach == attached[k]);
    }
    CHECK(walk_registry_in(folder, false) == "");
    Process& late = cluster.spawn("crowd");  // who joins reaps
    CHECK(walk_registry_in(folder, true) == "");

    // Makers die as well, a home segment's and an import's: both are removed, and stay while they
    // are attached, and no new segment gets their ids.
    crowd[0]->kill();
    crowd[kShared - 1]->kill();
    CHECK((seg_status(late, ids[0]).status.st_flags & CMI_SEG_ST_REMOVED) != 0);
    CHECK(seg_at(late, ids[0]).failed(CMI_ERR_INVAL));
    CHECK(seg_at(late, ids[kShared - 1]).failed(CMI_ERR_INVAL));
    for (int i = 0; i < 20; ++i) {
      const cmi_seg fresh = seg_get(late, kPage).seg();
      CHECK(std::find(ids.begin(), ids.end(), fresh) == ids.end());
      REQUIRE(seg_rm(late, fresh).ok());
    }
    CHECK(walk_registry_in(folder, false) == "");
    // Their last detach is the end of the others.
    for (size_t i = 1; i < kProcesses; ++i) {
      if (!crowd[i]->ended()) crowd[i]->kill();
    }
    Process& last = cluster.spawn("crowd");
    CHECK(walk_registry_in(folder, true) == "");
    for (const cmi_seg id : ids) CHECK(seg_status(last, id).answer.failed(CMI_ERR_INVAL));
  }

  TEST_CASE("threads_attach_and_detach_an_import_concurrently") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Process& beside = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    const auto attaching = [](cmi_seg seg) {
      std::atomic<int> wrong{0};
      std::vector<std::thread> threads;
      for (uint64_t t = 0; t < 6; ++t) {
        threads.emplace_back([&, t] {
          if (CMIFN(ctxt(), 10, ini_th)(ctxt()) != 0) ++wrong;
          CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
          for (uint64_t round = 1; round <= 30; ++round) {
            void* at = CMIFN(ctxt(), 10, seg_at)(ctxt(), seg, nullptr, 0);
            if (at == nullptr) {
              ++wrong;
              break;
            }
            const uint64_t word = reinterpret_cast<uint64_t>(at) + t * kPage + (::getpid() % 2) * 8;
            if (store64(word, round).cause() != Fault::kNone) ++wrong;
            if (load64(word).value != round) ++wrong;
            if (CMIFN(ctxt(), 10, seg_dt)(ctxt(), seg, at) != 0) ++wrong;
          }
          CMIFN(ctxt(), 10, fini)(ctxt());
        });
      }
      for (auto& t : threads) t.join();
      return wrong.load();
    };
    // In the process that imported it, and in one that has its import made and ended by its views.
    auto first = peer.start(attaching, import.seg);
    auto second = beside.start(attaching, import.seg);
    CHECK(first.get(60) == 0);
    CHECK(second.get(60) == 0);
    CHECK(seg_status(peer, import.seg).status.st_nattach == 1);
    CHECK(load(peer, import.at).cause() == Fault::kNone);
  }
}

}  // namespace

}  // namespace cmi::test::crowd_nodes_test
