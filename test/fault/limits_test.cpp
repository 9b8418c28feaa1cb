// Too few descriptors, too little room: calls fail with an error that says so, whoever was there
// goes on, and all works again once there is room.
#include <dirent.h>
#include <doctest/doctest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "fault/patience.hpp"
#include "support/skip.hpp"
#include "system/small_tmpfs.hpp"

namespace cmi::test::limits_test {

namespace {

// In the child: descriptors that are open.
rlim_t open_descriptors() {
  rlim_t highest = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (const dirent* entry = ::readdir(folder)) {
    highest += entry->d_name[0] != '.';
  }
  ::closedir(folder);
  return highest - 1;  // the folder's own
}

bool limit_descriptors(rlim_t most) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = most;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

// Nothing may be opened any more: every number below the lowest free one is taken.
void leave_no_descriptor(Process& process) {
  REQUIRE(process.run([] {
    const int lowest = ::dup(0);
    return ::close(lowest) == 0 && limit_descriptors(static_cast<rlim_t>(lowest));
  }));
}
void give_descriptors_back(Process& process) {
  REQUIRE(process.run([] { return limit_descriptors(1024); }));
}

// From now on limits of threads count for the process, as they do for every ordinary user; files
// are root's as before. False: that cannot be.
bool count_threads_as_of_a_user() {
  constexpr uid_t kSomebody = 65534;
  if (::geteuid() != 0) return true;
  __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct caps[2] = {};
  if (::setreuid(kSomebody, 0) != 0 || ::syscall(SYS_capget, &head, caps) != 0) return false;
  caps[0].effective &= ~(1u << CAP_SYS_RESOURCE | 1u << CAP_SYS_ADMIN);
  return ::syscall(SYS_capset, &head, caps) == 0;
}

bool limit_threads(rlim_t most) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NPROC, &limit);
  limit.rlim_cur = std::min(most, limit.rlim_max);
  return ::setrlimit(RLIMIT_NPROC, &limit) == 0;
}

TEST_SUITE("limits") {
  TEST_CASE("cmi_ini_where_no_thread_can_be_made_is_nomem_says_so_and_works_where_one_can") {
    for (const char* fault : {"signal", "thread"}) {
      if (*fault == 't' && !fault_threads_possible()) continue;
      CAPTURE(fault);
      Cluster cluster;
      const std::string trace = cluster.scratch() + "/trace";
      Process& process = cluster.spawn_bare(
          "node", {{"CMI_FAULT", fault}, {"CMI_TRACE", "all:error"}, {"CMI_TRACE_FILE", trace}});
      REQUIRE(process.run([] { return count_threads_as_of_a_user() && limit_threads(0); }));
      const Answer none = ini(process);
      CHECK_MESSAGE(none.failed(CMI_ERR_NOMEM), none);
      CHECK(process.run([] {
        return std::strstr(cmi_ofi_error_text(nullptr), "no thread can be made") != nullptr;
      }));
      std::ifstream file(trace);
      const std::string said((std::istreambuf_iterator<char>(file)), {});
      CHECK(said.find("no thread can be made") != std::string::npos);
      REQUIRE(process.run([] { return limit_threads(RLIM_INFINITY); }));
      const Answer enough = ini(process);
      CHECK_MESSAGE(enough.ok(), enough);
      const Export exported = export_segment(process);
      CHECK(load(process, exported.at).cause() == Fault::kNone);
    }
  }

  TEST_CASE("cmi_ini_without_descriptors_fails_with_nomem_leaks_none_and_works_with_enough") {
    Cluster cluster;
    Process& process = cluster.spawn_bare("node");
    struct Result {
      int failed, other_errors, leaked;
      bool started;
    };
    const Result result = process.run([] {
      Result r{};
      // The libraries that are loaded once keep what they open: one good start before.
      r.started = start_context(CMI_VERNO).ok() && finish_context().ok();
      const rlim_t before = open_descriptors();
      for (rlim_t more = 0; r.started && more < 200; ++more) {
        limit_descriptors(before + more);
        const Answer answer = start_context(CMI_VERNO);
        limit_descriptors(1024);
        if (answer.ok()) {
          finish_context();
          break;
        }
        ++r.failed;
        r.other_errors += !answer.failed(CMI_ERR_NOMEM);
        r.leaked += open_descriptors() != before;
      }
      r.started = r.started && start_context(CMI_VERNO).ok();
      return r;
    });
    CHECK(result.started);
    CHECK(result.failed > 5);
    CHECK(result.other_errors == 0);
    CHECK(result.leaked == 0);
    const Export exported = export_segment(process);
    CHECK(load(process, exported.at).cause() == Fault::kNone);
  }

  TEST_CASE("a_home_without_descriptors_serves_who_is_there_and_newcomers_once_it_has_some") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Process& late = cluster.spawn("late");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    // Each side has its connection to the other.
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    REQUIRE(publish(home, exported.at, 3));
    REQUIRE(publish(peer, import.at, 4));
    leave_no_descriptor(home);
    CHECK_FALSE(seg_imp(late, exported.handle).ok());
    for (uint64_t round = 1; round <= 20; ++round) {
      CHECK(publish(peer, import.at, round));
      CHECK(load(home, exported.at).value == round);
      CHECK(publish(home, exported.at, round + 100));
      CHECK(load(peer, import.at).value == round + 100);
    }
    CHECK(seg_exp(home, exported.seg).ok());
    CHECK_FALSE(seg_get(home, 4 * kPage).ok());
    give_descriptors_back(home);
    CHECK(seg_get(home, 4 * kPage).ok());
    CHECK(load(late, import_segment(late, exported).at).value == 120);
  }

  TEST_CASE("a_home_that_cannot_reach_an_importer_for_want_of_descriptors_holds_it_for_alive") {
    Cluster cluster;
    Process& home = cluster.spawn("home", {{"CMI_DEAD_AFTER", "1000"}});
    Process& peer = cluster.spawn("peer");
    const Export exported = export_consistent(home, 4 * kPage);
    const Import import = import_segment(peer, exported);
    // The home has never had anything to tell it: there is no connection for that yet.
    REQUIRE(load(peer, import.at).value == 0);
    leave_no_descriptor(home);
    REQUIRE(store(peer, import.at + 8, 5).cause() == Fault::kNone);
    // Waits for longer than it takes to be declared dead.
    CHECK(home.start(
                  [](uint64_t at) {
                    store64(at, 7);
                    const int result = CMIFN(ctxt(), 10, wmb_fn)(ctxt());
                    return answer(result, result != 0);
                  },
                  exported.at)
              .get()
              .failed(CMI_ERR_STORE));
    give_descriptors_back(home);
    Board board(cluster);
    CHECK(start_patient_barrier(home, board).get().ok());
    CHECK(load_until(peer, import.at, 7) == 7);
    CHECK(wmb(peer).ok());
    CHECK(load(home, exported.at + 8).value == 5);
  }

  TEST_CASE("an_importer_without_descriptors_keeps_what_it_has_and_gets_more_once_it_has_some") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& second = cluster.spawn("second");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Export more = export_segment(second);
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(second, more.at, 8));
    // The first access takes the descriptors of mapped pages.
    if (mapped()) REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    leave_no_descriptor(peer);
    const Answer imported = seg_imp(peer, more.handle);
    CHECK_FALSE(imported.ok());
    for (uint64_t round = 1; round <= 20; ++round) {
      CHECK(publish(peer, import.at, round));
      CHECK(load(home, exported.at).value == round);
    }
    give_descriptors_back(peer);
    CHECK(load(peer, import_segment(peer, more).at).value == 8);
  }

  TEST_CASE("an_import_for_which_the_importer_has_no_descriptors_is_nomem_and_says_so") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer", {{"CMI_JOIN_TIMEOUT", "5000"}});
    const Export exported = export_segment(home);
    // One more each time, so that what an import needs runs out at each step of it once.
    bool imported = false;
    for (rlim_t more = 0; more < 24 && !imported; ++more) {
      CAPTURE(more);
      REQUIRE(peer.run(
          [](rlim_t few) {
            limit_descriptors(1024);
            const int lowest = ::dup(0);
            return ::close(lowest) == 0 && limit_descriptors(static_cast<rlim_t>(lowest) + few);
          },
          more));
      const Answer answer = seg_imp(peer, exported.handle);
      imported = answer.ok();
      CHECK_MESSAGE((imported || answer.error == CMI_ERR_NOMEM), answer);
      CHECK((imported || peer.run([] {
        return std::strstr(cmi_ofi_error_text(ctxt()), "descriptors") != nullptr;
      })));
    }
    CHECK(imported);
  }

  TEST_CASE("a_link_that_breaks_while_there_are_no_descriptors_is_rebuilt_once_there_are_some") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, 8 * kPage);
    const Import import = import_segment(peer, exported);
    REQUIRE(publish(home, exported.at + kPage, 4));
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    REQUIRE(store(peer, import.at, 5).cause() == Fault::kNone);
    Board board(cluster);
    peer.run([](Board::Name name) { Board::open(name); }, board.name());
    leave_no_descriptor(peer);
    home.stop();
    auto loading = start_patient_load(peer, board, import.at + kPage);
    CHECK(board.reaches(0, 1));
    home.signal(SIGCONT);
    // The limit is the process's own affair; here the test lifts it from outside.
    rlimit limit{1024, 1024};
    REQUIRE(::prlimit(peer.pid(), RLIMIT_NOFILE, &limit, nullptr) == 0);
    CHECK(loading.get().value == 4);
    CHECK(wmb(peer).ok());
    CHECK(load(home, exported.at).value == 5);
  }

  TEST_CASE("cmi_ini_on_a_full_file_system_is_nomem_and_works_once_there_is_room") {
    Cluster cluster;
    SmallTmpfs small(cluster.scratch() + "/small", 4u << 20);
    if (!small.mounted()) return skip(small.reason());
    const std::string ballast = cluster.scratch() + "/small/ballast";
    {
      std::ofstream file(ballast, std::ios::binary);
      const std::string block(1 << 16, 'x');
      while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
      }
    }
    Process& process = cluster.spawn_bare("node", {{"CMI_RUNTIME_DIR", small.folder() + "/run"}});
    const Answer full = ini(process);
    CHECK_MESSAGE(full.failed(CMI_ERR_NOMEM), full);
    REQUIRE(std::remove(ballast.c_str()) == 0);
    CHECK(ini(process).ok());
    const Export exported = export_segment(process);
    CHECK(store(process, exported.at, 1).cause() == Fault::kNone);
    process.end();
  }
}

}  // namespace

}  // namespace cmi::test::limits_test
