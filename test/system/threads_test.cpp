// ini_th, fini and cmi_get_error: threads come and go, each with errors of its own.
#include <sys/syscall.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "system/counting_heap.hpp"
#include "system/every_call.hpp"
#include "system/one_process.hpp"

namespace cmi::one_process::threads_test {

namespace {

// Threads of the library whose mask holds the signal, and all of them.
struct Masks {
  std::vector<pid_t> all, blocking;
};
Masks library_threads(int signo) {
  Masks found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string line;
    bool ours = false;
    while (std::getline(status, line)) {
      if (line.starts_with("Name:")) ours = line.find("cmi-") != std::string::npos;
      if (!ours || !line.starts_with("SigBlk:")) continue;
      const pid_t tid = std::stoi(task.path().filename());
      found.all.push_back(tid);
      const uint64_t mask = std::stoull(line.substr(line.find_last_of('\t') + 1), nullptr, 16);
      if ((mask >> (signo - 1) & 1) != 0) found.blocking.push_back(tid);
    }
  }
  return found;
}

std::atomic<pid_t> sigbus_taken_by{0};
void take_sigbus(int) { sigbus_taken_by.store(static_cast<pid_t>(syscall(SYS_gettid))); }

}  // namespace

TEST_SUITE_BEGIN("context");

TEST_CASE_FIXTURE(Process, "threads_of_the_library_never_block_sigbus_nor_take_one_that_was_sent") {
  struct sigaction handler = {}, former;
  handler.sa_handler = take_sigbus;
  REQUIRE(::sigaction(SIGBUS, &handler, &former) == 0);
  sigset_t bus, before;
  sigemptyset(&bus);
  sigaddset(&bus, SIGBUS);
  for (const std::string how : {"signal", "thread"}) {
    CAPTURE(how);
    ::setenv("CMI_FAULT", how.c_str(), 1);
    // Whoever makes the context has it blocked, and the threads are made in its image.
    pthread_sigmask(SIG_BLOCK, &bus, &before);
    ctxt = cmi_ini(CMI_VERNO, nullptr);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (ctxt == nullptr && how == "thread" && error() == CMI_ERR_NOTSUPP) {
      break;  // not every user may have the faults of system calls; the other way has been checked
    }
    REQUIRE_MESSAGE(ctxt != nullptr, "cmi_ini failed, error ", static_cast<int>(error()));
    const auto none_blocks = [] {
      const Masks masks = library_threads(SIGBUS);
      return !masks.all.empty() && masks.blocking.empty();
    };
    const auto soon = [](auto holds) {
      for (int i = 0; i < 10000 && !holds(); ++i) ::usleep(1000);
      return holds();
    };
    CHECK(soon(none_blocks));
    for (const pid_t thread : library_threads(SIGBUS).all) {
      sigbus_taken_by.store(0);
      REQUIRE(syscall(SYS_tgkill, getpid(), thread, SIGBUS) == 0);
      CHECK(soon([] { return sigbus_taken_by.load() != 0; }));
      CHECK(sigbus_taken_by.load() == getpid());
      CHECK(soon(none_blocks));
    }
    CHECK(CALL(fini) == 0);
    ctxt = nullptr;
  }
  ::unsetenv("CMI_FAULT");
  ::sigaction(SIGBUS, &former, nullptr);
}

TEST_CASE_FIXTURE(Process, "cmi_get_error_without_a_context_tells_why_cmi_ini_failed") {
  in_thread([] {  // a thread that has never called anything
    CHECK(cmi_get_error(nullptr) == CMI_ERR_NONE);
    CHECK(cmi_ini(20, nullptr) == nullptr);
    CHECK(cmi_get_error(nullptr) == CMI_ERR_NOTSUPP);
  });
}

TEST_CASE_FIXTURE(Process, "cmi_get_error_after_a_failed_ini_th_tells_why") {
  ini();
  in_thread([&] {
    CHECK(CMIFN(ctxt, 11, ini_th)(nullptr) == -1);
    CHECK(cmi_get_error(nullptr) == CMI_ERR_INVAL);
    CHECK(cmi_get_error(ctxt) == CMI_ERR_INVAL);
  });
}

TEST_CASE_FIXTURE(Process, "errors_are_kept_for_each_thread") {
  ini();
  CHECK(CALL(seg_get, 0, 0) == CMI_SEG_INVALID);
  in_thread([&] {
    CHECK(cmi_get_error(ctxt) == CMI_ERR_NONE);
    CHECK(CALL(seg_get, 4096, 0) == CMI_SEG_INVALID);
    CHECK(cmi_get_error(ctxt) == CMI_ERR_INIT);
  });
  CHECK(cmi_get_error(ctxt) == CMI_ERR_INVAL);
}

TEST_CASE_FIXTURE(Process, "cmi_get_error_may_be_called_by_any_thread") {
  const auto garbage = reinterpret_cast<cmi_ctxt*>(uintptr_t{0x10});
  in_thread([&] { CHECK(cmi_get_error(garbage) == CMI_ERR_NONE); });
  ini();
  in_thread([&] {
    CHECK(cmi_get_error(ctxt) == CMI_ERR_NONE);
    CHECK(cmi_get_error(nullptr) == CMI_ERR_NONE);
    CHECK(cmi_get_error(garbage) == CMI_ERR_NONE);
  });
}

TEST_CASE_FIXTURE(Process, "a_thread_registered_by_ini_th_may_call_the_library") {
  ini();
  in_thread([&] {
    CHECK(CALL(ini_th) == 0);
    const cmi_seg seg = CALL(seg_get, 4096, 0);
    CHECK(seg > 0);
    void* view = CALL(seg_at, seg, nullptr, 0);
    CHECK(view != nullptr);
    CHECK(CALL(seg_dt, seg, view) == 0);
    CHECK(CALL(fini) == 0);
  });
}

TEST_CASE_FIXTURE(Process, "ini_th_twice_is_bound") {
  ini();
  in_thread([&] {
    CHECK(CALL(ini_th) == 0);
    CHECK_FAILS(CALL(ini_th), -1, CMI_ERR_BOUND);
    CHECK_FAILS(cmi_ini(CMI_VERNO, nullptr), nullptr, CMI_ERR_BOUND);
    CHECK(CALL(fini) == 0);
    CHECK_FAILS(CALL(fini), -1, CMI_ERR_INIT);
  });
}

TEST_CASE_FIXTURE(Process, "ini_th_with_a_wrong_context_is_inval") {
  ini();
  cmi_fn_ini_th* const ini_th = ctxt->fns11->ini_th;
  cmi_ctxt* const former = ctxt;
  in_thread([&] {
    CHECK_FAILS(ini_th(nullptr), -1, CMI_ERR_INVAL);
    CHECK_FAILS(ini_th(reinterpret_cast<cmi_ctxt*>(uintptr_t{0x10})), -1, CMI_ERR_INVAL);
    CHECK_FAILS(CALL(seg_get, 4096, 0), CMI_SEG_INVALID, CMI_ERR_INIT);
  });
  end();
  CHECK_FAILS(ini_th(former), -1, CMI_ERR_INVAL);
}

TEST_CASE_FIXTURE(ProcessWith<CountingHeap>, "ini_th_without_memory_is_nomem") {
  CountingHeap& heap = client;
  cmi_cbs cbs = heap.callbacks();
  ini(CMI_VERNO, &cbs);
  in_thread([&] {
    heap.fail_all(true);
    CHECK_FAILS(CALL(ini_th), -1, CMI_ERR_NOMEM);
    heap.fail_all(false);
    CHECK_FAILS(CALL(seg_get, 4096, 0), CMI_SEG_INVALID, CMI_ERR_INIT);
    CHECK(CALL(ini_th) == 0);
    CHECK(CALL(seg_get, 4096, 0) > 0);
    CHECK(CALL(fini) == 0);
  });
}

TEST_CASE_FIXTURE(Process, "threads_register_and_leave_concurrently") {
  constexpr int kThreads = 16;
  constexpr int kRounds = 100;
  ini();
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        bool fine = CALL(ini_th) == 0;
        const cmi_seg seg = CALL(seg_get, 4096, 0);
        fine = fine && seg > 0 && CALL(seg_ctl, seg, CMI_SEG_RM, nullptr) == 0;
        fine = CALL(fini) == 0 && fine;
        if (!fine) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(segment() > 0);
}

TEST_CASE_FIXTURE(Process, "fini_of_an_unregistered_thread_is_init") {
  ini();
  in_thread([&] { CHECK_FAILS(CALL(fini), -1, CMI_ERR_INIT); });
  CHECK(segment() > 0);
}

TEST_CASE_FIXTURE(Process, "a_thread_gets_init_from_every_call_after_fini") {
  ini();
  const cmi_seg seg = segment();
  in_thread([&] {
    CHECK(CALL(ini_th) == 0);
    Arguments args;
    args.seg = seg;
    args.view = CALL(seg_at, seg, nullptr, 0);
    CHECK(CALL(fini) == 0);
    for (const Entry& entry : kEveryCall) {
      CAPTURE(std::string(entry.name));
      if (std::strcmp(entry.name, "ini_th") == 0) continue;
      CHECK(entry.fails(*ctxt->fns11, ctxt, args));
      CHECK(cmi_get_error(ctxt) == CMI_ERR_INIT);
    }
  });
  *attach(seg) = std::byte{1};
}

TEST_CASE_FIXTURE(Process, "a_thread_may_register_again_after_fini") {
  ini();
  in_thread([&] {
    for (int round = 0; round < 3; ++round) {
      CHECK(CALL(ini_th) == 0);
      CHECK(CALL(seg_get, 4096, 0) > 0);
      CHECK(CALL(fini) == 0);
    }
    CHECK(cmi_ini(CMI_VERNO, nullptr) == ctxt);
    CHECK(CALL(fini) == 0);
  });
}

TEST_CASE_FIXTURE(Process, "a_thread_that_exits_without_fini_is_deregistered") {
  ini();
  const cmi_seg home = segment();
  const std::byte* view = attach(home);
  std::byte* remote = attach(import_own(home));
  in_thread([&] {
    CHECK(CALL(ini_th) == 0);
    CHECK(CALL(cmi_enb, 1) == 0);
    CHECK(CALL(open_fb) != nullptr);
    *remote = std::byte{0x2a};
  });
  CHECK(*view == std::byte{0x2a});  // its epoch was closed, which flushes

  // The last registered thread of a context goes the same way, and the context with it.
  end();
  in_thread([&] { ctxt = cmi_ini(CMI_VERNO, nullptr); });
  REQUIRE(ctxt != nullptr);
  ctxt = nullptr;
  CHECK(folder_entries().empty());
  ini();
  CHECK_FAILS(CALL(seg_at, home, nullptr, 0), nullptr, CMI_ERR_INVAL);
}

TEST_SUITE_END();

}  // namespace cmi::one_process::threads_test
