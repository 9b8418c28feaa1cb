// The end of a process with a context: by exit() or by return from main without fini, beside
// threads that work, and of its first thread alone.
#include <dirent.h>
#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "core/base/clock.hpp"
#include "support/sanitized.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"

namespace cmi::test::ending_nodes_test {

namespace {

// In a child of a process without a context: imports, and leaves the rest to `use`. How it ended.
using Use = int (*)(volatile uint64_t* view);
volatile uint64_t* import_here(Flat handle, Flat token) {
  if (!start_context(CMI_VERNO).ok()) ::_exit(101);
  cmi_ctxt* c = ctxt();
  const cmi_seg seg = CMIFN(c, 10, seg_imp)(c, handle.as<cmi_rseg>());
  cmi_ds ds{};
  ds.token.tok = token.as<cmi_token>();
  if (CMIFN(c, 10, seg_ctl)(c, seg, CMI_SEG_TOKEN, &ds) != 0) ::_exit(102);
  void* const view = CMIFN(c, 10, seg_at)(c, seg, nullptr, 0);
  if (view == nullptr || CMIFN(c, 10, cmi_enb)(c, 1) != 0) ::_exit(103);
  return static_cast<volatile uint64_t*>(view);
}

int in_child(Flat handle, Flat token, Use use) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGSEGV, SIG_DFL);  // an exception is an end of its own
    std::exit(use(import_here(handle, token)));
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

// From now on a call of sigaction for SIGBUS by the calling thread ends the process by SIGSYS.
bool kills_who_changes_the_handler_of_sigbus() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_rt_sigaction, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIGBUS, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{sizeof code / sizeof *code, code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// The first thread of the process shows nothing in /proc once it has ended.
bool first_thread_shows_descriptors() {
  int found = 0;
  if (DIR* dir = ::opendir("/proc/self/fd"); dir != nullptr) {
    while (::readdir(dir) != nullptr) ++found;
    ::closedir(dir);
  }
  return found > 2;
}

// Runs `body` in a thread of a child whose first thread has ended; the number that it returns, -1
// if the child came to another end.
int without_first_thread(int (*body)()) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::thread([body] {
      const Deadline deadline = Deadline::in(10 * kSecond);
      while (first_thread_shows_descriptors() && !deadline.passed()) ::usleep(1000);
      ::_exit(deadline.passed() ? 200 : body());
    }).detach();
    ::pthread_exit(nullptr);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A thread that is registered, and does nothing from then on.
void start_idle_thread() {
  static std::atomic<bool> registered{false};
  std::thread([] {
    if (CMIFN(ctxt(), 10, ini_th)(ctxt()) != 0) ::_exit(104);
    registered = true;
    for (;;) ::pause();
  }).detach();
  const Deadline deadline = Deadline::in(20 * kSecond);
  while (!registered && !deadline.passed()) ::usleep(100);
  if (!registered) ::_exit(104);
}

TEST_SUITE("ending") {
  TEST_CASE("what_was_stored_is_at_home_when_the_process_has_ended_by_exit") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn_bare("peer");
    const Export exported = export_segment(home, 4 * kPage);
    const int status = peer.run(
        [](Flat handle, Flat token) {
          return in_child(handle, token, [](volatile uint64_t* view) {
            for (int page = 0; page < 4; ++page)
              view[page * 512] = 70 + static_cast<uint64_t>(page);
            return 0;
          });
        },
        exported.handle, exported.token);
    CHECK(describe_status(status) == "exit status 0");
    for (uint64_t page = 0; page < 4; ++page) {
      const Access got = load(home, exported.at + page * kPage);
      CHECK(got.cause() == Fault::kNone);
      CHECK(got.value == 70 + page);
    }
  }

  TEST_CASE("an_exit_handler_from_before_the_context_may_use_a_view") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn_bare("peer");
    const Export exported = export_segment(home, 4 * kPage);
    const int status = peer.run(
        [](Flat handle, Flat token) {
          static volatile uint64_t* late = nullptr;
          const pid_t child = ::fork();
          if (child == 0) {
            ::signal(SIGSEGV, SIG_DFL);
            std::atexit([] { late[512] = late[0] + 1; });
            late = import_here(handle, token);
            std::exit(0);
          }
          int ended = -1;
          ::waitpid(child, &ended, 0);
          return ended;
        },
        exported.handle, exported.token);
    CHECK(describe_status(status) == "exit status 0");
    CHECK(load(home, exported.at + kPage).value == 1);
  }

  TEST_CASE(
      "exit_beside_a_thread_that_works_on_an_import_kills_nobody_and_leaves_no_page_in_flux") {
    if (kSanitized) return skip("the sanitizer's own end looks at memory of threads that run");
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn_bare("peer");
    const Export exported = export_segment(home, 16 * kPage);
    for (int round = 0; round < 9; ++round) {
      CAPTURE(round);
      const int status = peer.run(
          [](Flat handle, Flat token, int r) {
            // With the first thread registered, after its fini, and by a thread that was never
            // registered.
            static int how;
            how = r % 3;
            return in_child(handle, token, [](volatile uint64_t* view) {
              static std::atomic<int> working{0};
              std::thread([view] {
                cmi_ctxt* c = ctxt();
                if (CMIFN(c, 10, ini_th)(c) != 0 || CMIFN(c, 10, cmi_enb)(c, 1) != 0) ::_exit(104);
                for (uint64_t i = 0;; ++i) {
                  view[i * 7 % 16 * 512] = i;
                  if (i % 50 == 0) (void)CMIFN(c, 10, wmb_fn)(c);
                  working = 1;
                }
              }).detach();
              while (working == 0) ::usleep(100);
              if (how == 1 && CMIFN(ctxt(), 10, fini)(ctxt()) != 0) return 105;
              if (how == 2) {
                std::thread([] { std::exit(0); }).detach();
                for (;;) ::pause();
              }
              return 0;
            });
          },
          exported.handle, exported.token, round);
      CHECK(describe_status(status) == "exit status 0");
      // Nor is a page in flux, though the thread stored, and published, to the last moment.
      const Deadline deadline = Deadline::in(20 * kSecond);
      int told = 0;
      while ((told = next_event(home)) == 0 && !deadline.passed()) ::usleep(1000);
      CHECK(told == CMI_EVENT_RCTXT_DOWN);
      for (uint64_t page = 0; page < 16; ++page) {
        CHECK(load(home, exported.at + page * kPage).cause() == Fault::kNone);
      }
    }
  }

  // Of stores that are at home nothing is in flux, however many threads the process had.
  TEST_CASE("exit_beside_a_registered_thread_leaves_no_page_in_flux") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn_bare("peer");
    const Export exported = export_segment(home, 4 * kPage);
    const int status = peer.run(
        [](Flat handle, Flat token) {
          return in_child(handle, token, [](volatile uint64_t* view) {
            start_idle_thread();
            // Pages that are stored to again and again stay writable, and announced at home.
            for (uint64_t round = 1; round <= 30; ++round) {
              for (uint64_t page = 0; page < 4; ++page) view[page * 512] = round;
              if (CMIFN(ctxt(), 10, wmb_fn)(ctxt()) != 0) return 105;
            }
            for (uint64_t page = 0; page < 4; ++page) view[page * 512] = 70 + page;
            return 0;
          });
        },
        exported.handle, exported.token);
    CHECK(describe_status(status) == "exit status 0");
    // What was in flux is marked by the time that the home tells of the end.
    const Deadline deadline = Deadline::in(20 * kSecond);
    int told = 0;
    while ((told = next_event(home)) == 0 && !deadline.passed()) ::usleep(1000);
    CHECK(told == CMI_EVENT_RCTXT_DOWN);
    for (uint64_t page = 0; page < 4; ++page) {
      const Access got = load(home, exported.at + page * kPage);
      CHECK(got.cause() == Fault::kNone);
      CHECK(got.value == 70 + page);
    }
  }

  // One of the libraries below puts back what was there when it was loaded, when it ends.
  TEST_CASE("the_handler_of_sigbus_is_there_to_the_end_of_the_process") {
    if (kSanitized) return skip("the sanitizer's own look for leaks at the end changes it");
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn_bare("peer");
    const Export exported = export_segment(home);
    const int status = peer.run(
        [](Flat handle, Flat token) {
          return in_child(handle, token, [](volatile uint64_t* view) {
            view[0] = 1;
            start_idle_thread();
            return kills_who_changes_the_handler_of_sigbus() ? 0 : 105;
          });
        },
        exported.handle, exported.token);
    CHECK(describe_status(status) == "exit status 0");
  }

  TEST_CASE("a_context_begins_in_a_process_whose_first_thread_has_ended") {
    Cluster cluster;
    Process& process = cluster.spawn_bare("node");
    CHECK(process.run([] {
      return without_first_thread([] {
        cmi_ctxt* const c = cmi_ini(CMI_VERNO, nullptr);
        if (c == nullptr) return 1;
        const cmi_seg seg = CMIFN(c, 10, seg_get)(c, kPage, 0);
        if (seg == CMI_SEG_INVALID) return 2;
        auto* const at = static_cast<uint64_t*>(CMIFN(c, 10, seg_at)(c, seg, nullptr, 0));
        if (at == nullptr) return 3;
        *at = 1;
        return CMIFN(c, 10, fini)(c) == 0 ? 0 : 4;
      });
    }) == 0);
  }

  TEST_CASE("a_process_whose_first_thread_has_ended_offers_a_segment_in_a_folder") {
    Cluster cluster;
    Process& process = cluster.spawn_bare("node", {{"TEST_MEETING", cluster.scratch()}});
    CHECK(process.run([] {
      return without_first_thread([] {
        cmi_ctxt* const c = cmi_ini(CMI_VERNO, nullptr);
        if (c == nullptr) return 1;
        const cmi_seg seg = CMIFN(c, 10, seg_get)(c, kPage, 0);
        const cmi_rseg* const handle = CMIFN(c, 10, seg_exp)(c, seg, 0);
        const cmi_token* const token = CMIFN(c, 10, tok_new)(c, seg, CMI_NADDR_ANY, CMI_ACC_READ);
        if (handle == nullptr || token == nullptr) return 2;
        if (cmi_ofi_offer(c, std::getenv("TEST_MEETING"), "table", handle, token) != 0) return 3;
        return CMIFN(c, 10, fini)(c) == 0 ? 0 : 4;
      });
    }) == 0);
  }

  // A segment's file comes from its maker over the node's bus.
  TEST_CASE("segments_of_a_process_whose_first_thread_has_ended_are_attached_by_others") {
    Cluster cluster;
    const std::string told = cluster.scratch() + "/segment";
    Process& maker = cluster.spawn_bare("node", {{"TEST_SEGMENT_FILE", told}});
    Process& sibling = cluster.spawn("node");
    auto making = maker.start([] {
      return without_first_thread([] {
        cmi_ctxt* const c = cmi_ini(CMI_VERNO, nullptr);
        if (c == nullptr) return 1;
        const cmi_seg seg = CMIFN(c, 10, seg_get)(c, kPage, 0);
        if (seg == CMI_SEG_INVALID) return 2;
        std::ofstream(std::getenv("TEST_SEGMENT_FILE")) << seg << std::endl;
        cmi_ds ds{};
        for (const Deadline deadline = Deadline::in(20 * kSecond); !deadline.passed();) {
          if (CMIFN(c, 10, seg_ctl)(c, seg, CMI_SEG_STATUS, &ds) != 0) return 3;
          if (ds.status.st_nattach == 1) break;
          ::usleep(1000);
        }
        return ds.status.st_nattach == 1 && CMIFN(c, 10, fini)(c) == 0 ? 0 : 4;
      });
    });
    cmi_seg seg = CMI_SEG_INVALID;
    for (const Deadline deadline = Deadline::in(10 * kSecond);
         !(std::ifstream(told) >> seg) && !deadline.passed();) {
      ::usleep(1000);
    }
    CHECK(seg_at(sibling, seg).ok());
    CHECK(making.get() == 0);
  }
}

}  // namespace

}  // namespace cmi::test::ending_nodes_test
