// CMI_FAULT=thread: system calls take addresses of imported segments, and errors come as ever. The
// other node tests run in this mode too, under the label thread-mode.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/fd.hpp"
#include "support/passages.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"

namespace cmi::test::fault_threads_nodes_test {

namespace {

constexpr uint64_t kPages = 16;

// A process with threads for its faults that has called cmi_ini(); null where that cannot be.
Process* spawn_with_fault_threads(Cluster& cluster, Env env = {}) {
  env.emplace_back("CMI_FAULT", "thread");
  Process& bare = cluster.spawn_bare("peer", env);
  const Answer started = ini(bare);
  if (started.failed(CMI_ERR_NOTSUPP)) {
    skip("no userfaultfd for the faults of system calls, or a kernel before 6.6");
    return nullptr;
  }
  REQUIRE(started.ok());
  return &bare;
}

// Two nodes, the second with threads for its faults; none where that cannot be.
struct Scene {
  Cluster cluster;
  Process& home = cluster.spawn("home");
  Process* peer = spawn_with_fault_threads(cluster);
  Export exported;
  Import import;

  Scene() {
    if (peer == nullptr) return;
    exported = export_segment(home, kPages * kPage);
    import = import_segment(*peer, exported);
  }
};

// Until so many have come to the fault point of the process that counts in this file.
void await_passage(const std::string& counts, const std::string& point, uint64_t times) {
  for (const Deadline end = Deadline::in(20 * kSecond); read_passages(counts)[point] < times;) {
    REQUIRE_MESSAGE(!end.passed(), point);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The result of a system call in the process: bytes, or minus errno.
int64_t result(ssize_t got) { return got >= 0 ? got : -errno; }

// write(2) from `at` into a file and read(2) of the file into `to`, `size` bytes.
int64_t copy_through_file(uint64_t at, uint64_t to, uint64_t size) {
  Fd file(static_cast<int>(::memfd_create("copy", MFD_CLOEXEC)));
  const int64_t wrote = result(::write(file.get(), reinterpret_cast<void*>(at), size));
  if (wrote != static_cast<int64_t>(size)) return wrote;
  return result(::pread(file.get(), reinterpret_cast<void*>(to), size, 0));
}

// Threads of this process that take faults.
int fault_threads_here() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    count += name == "cmi-fault";
  }
  return count;
}

constexpr uint64_t kFarApart = 37;  // pages between two loads, so that none is fetched ahead

// While `count` threads wait for pages of a home that is stopped, from `silent` on, and `wait_for`
// of them in a fault thread: a load of `elsewhere`. Then the home goes on.
struct Beside {
  int waiting;  // still, when the load was over
  int fault_threads;
  int right;  // of the threads
  uint64_t value;
};
Beside load_beside(uint64_t silent, pid_t home, int count, uint64_t wait_for, uint64_t elsewhere) {
  Beside seen{};
  std::atomic<int> waiting{count}, right{0};
  const uint64_t before = stats().load_misses;
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, page = static_cast<uint64_t>(i) * kFarApart] {
      CMIFN(ctxt(), 10, ini_th)(ctxt());
      CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
      right += load64(silent + page * kPage).value == 7;
      --waiting;
      CMIFN(ctxt(), 10, fini)(ctxt());
    });
  }
  const Deadline deadline = Deadline::in(20 * kSecond);
  while (stats().load_misses < before + wait_for && !deadline.passed()) ::usleep(500);
  seen.value = load64(elsewhere).value;
  seen.waiting = waiting.load();
  seen.fault_threads = fault_threads_here();
  ::kill(home, SIGCONT);
  for (std::thread& thread : threads) thread.join();
  seen.right = right.load();
  return seen;
}

// Two homes, and a peer that gives up an access after 20 s, and a home not before an hour.
struct TwoHomes {
  Cluster cluster;
  Process& silent = cluster.spawn("silent");
  Process& other = cluster.spawn("other");
  Process* peer = spawn_with_fault_threads(cluster, {{"CMI_DEAD_AFTER", "3600000"}});
  Import from_silent, from_other;

  explicit TwoHomes(uint64_t pages) {
    if (peer == nullptr) return;
    peer->run([] {
      cmi_ctl_cfg cfg{};
      cfg.ctl_cfg_rcfg_tout = 20'000;
      (void)CMIFN(ctxt(), 10, cmi_ctl)(ctxt(), CMI_CTL_RECONF_TOUT, &cfg);
    });
    const Export first = export_segment(silent, pages * kPage);
    const Export second = export_segment(other, kPage);
    from_silent = import_segment(*peer, first);
    from_other = import_segment(*peer, second);
    silent.run(
        [](uint64_t at, uint64_t count) {
          for (uint64_t p = 0; p < count; ++p) *reinterpret_cast<uint64_t*>(at + p * kPage) = 7;
        },
        first.at, pages);
    REQUIRE(wmb(silent).ok());
    REQUIRE(publish(other, second.at, 9));
  }
};

TEST_SUITE("fault-threads") {
  TEST_CASE("write_and_read_take_addresses_of_an_import") {
    Scene scene;
    if (scene.peer == nullptr) return;
    constexpr uint64_t kHalf = kPages / 2 * kPage;
    for (uint64_t page = 0; page < kPages / 2; ++page) {
      REQUIRE(store(scene.home, scene.exported.at + page * kPage + 8, page + 1).cause() == 0);
    }
    REQUIRE(wmb(scene.home).ok());
    // No page of either half is there yet; the copy is stored into them, and goes home.
    CHECK(scene.peer->run([](uint64_t at) { return copy_through_file(at, at + kHalf, kHalf); },
                          scene.import.at) == kHalf);
    REQUIRE(wmb(*scene.peer).ok());
    for (uint64_t page = 0; page < kPages / 2; ++page) {
      CHECK(load(scene.home, scene.exported.at + kHalf + page * kPage + 8).value == page + 1);
    }
  }

  TEST_CASE("threads_for_faults_are_refused_where_a_kernel_cannot_poison_a_page") {
    Cluster cluster;
    if (spawn_with_fault_threads(cluster, {{"CMI_KERNEL", "6.6"}}) == nullptr) return;
    Process& older = cluster.spawn_bare("older", {{"CMI_FAULT", "thread"}, {"CMI_KERNEL", "6.5"}});
    CHECK(ini(older).failed(CMI_ERR_NOTSUPP));
    // Signals need none.
    Process& signals =
        cluster.spawn_bare("signals", {{"CMI_FAULT", "signal"}, {"CMI_KERNEL", "6.5"}});
    CHECK(ini(signals).ok());
  }

  TEST_CASE("read_into_cached_pages_of_an_import_is_noticed") {
    // Cached pages are write-protected: the system call's store must be tracked like any.
    Scene scene;
    if (scene.peer == nullptr) return;
    REQUIRE(publish(scene.home, scene.exported.at, 5));
    for (uint64_t page = 0; page < kPages; ++page) {
      REQUIRE(load(*scene.peer, scene.import.at + page * kPage).cause() == Fault::kNone);
    }
    CHECK(scene.peer->run([](uint64_t at) { return copy_through_file(at, at + kPage, kPage); },
                          scene.import.at) == kPage);
    REQUIRE(wmb(*scene.peer).ok());
    CHECK(load(scene.home, scene.exported.at + kPage).value == 5);
  }

  TEST_CASE("sendmsg_gathers_from_an_import") {
    Scene scene;
    if (scene.peer == nullptr) return;
    REQUIRE(publish(scene.home, scene.exported.at + 3 * kPage, 33));
    REQUIRE(publish(scene.home, scene.exported.at + 9 * kPage, 99));
    const auto sum = scene.peer->run(
        [](uint64_t at) -> uint64_t {
          int ends[2];
          if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 0;
          const Fd out(ends[0]), in(ends[1]);
          iovec parts[2] = {{reinterpret_cast<void*>(at + 3 * kPage), 8},
                            {reinterpret_cast<void*>(at + 9 * kPage), 8}};
          msghdr message{};
          message.msg_iov = parts;
          message.msg_iovlen = 2;
          uint64_t words[2] = {};
          if (::sendmsg(out.get(), &message, 0) != sizeof words) return 0;
          if (::recv(in.get(), words, sizeof words, MSG_WAITALL) != sizeof words) return 0;
          return words[0] * 1000 + words[1];
        },
        scene.import.at);
    CHECK(sum == 33099);
  }

  // The thread that waits for it may store in a signal handler meanwhile, and the page has to ask
  // for a dirty intent then: only who alone has access, and makes its barrier itself, sends first.
  TEST_CASE("a_fault_thread_that_makes_room_protects_what_it_writes_back_before_it_goes") {
    constexpr uint64_t kMany = 2048;
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const std::string counts = cluster.scratch() + "/passages";
    Process* const peer = spawn_with_fault_threads(
        cluster, {{"CMI_FAULT_COUNT", counts}, {"CMI_FAULT_POINT", "no_aging=fail"}});
    if (peer == nullptr) return;
    const Export exported = export_segment(home, kMany * kPage);
    const Import import = import_segment(*peer, exported);
    REQUIRE(set_cache(*peer, import.seg, 1 << 20).ok());
    const uint64_t written = peer->run(
        [](uint64_t at) {
          store64(at, 7);
          // Every other page, so that nothing is fetched ahead.
          for (uint64_t i = 2; i < kMany; i += 2) (void)load64(at + i * kPage);
          return stats().pages_written_back;
        },
        import.at);
    CHECK(written == 1);
    CHECK(load_until(home, exported.at, 7) == 7);
    CHECK(read_passages(counts)["sent_before_protect"] == 0);
    REQUIRE(publish(*peer, import.at, 8));
    CHECK(read_passages(counts)["sent_before_protect"] == 1);
  }

  TEST_CASE("a_system_call_on_an_import_without_a_token_fails_with_efault_until_there_is_one") {
    Scene scene;
    if (scene.peer == nullptr) return;
    REQUIRE(publish(scene.home, scene.exported.at, 7));
    REQUIRE(load(*scene.peer, scene.import.at).value == 7);
    REQUIRE(tok_del(scene.home, scene.exported.token).ok());
    const auto write_once = [](uint64_t at) {
      const Fd file(static_cast<int>(::memfd_create("copy", MFD_CLOEXEC)));
      return result(::write(file.get(), reinterpret_cast<void*>(at), 8));
    };
    CHECK(scene.peer->run(write_once, scene.import.at) == -EFAULT);
    CHECK(load(*scene.peer, scene.import.at).cause() == CMI_ERROR_TOKEN);
    const Flat token = tok_new(scene.home, scene.exported.seg, kAllRights);
    REQUIRE(token.ok());
    REQUIRE(set_token(*scene.peer, scene.import.seg, token).ok());
    CHECK(load(*scene.peer, scene.import.at).value == 7);
    CHECK(scene.peer->run(write_once, scene.import.at) == 8);
  }

  TEST_CASE("a_page_that_a_system_call_has_failed_on_is_open_to_the_next_one_before_long") {
    Scene scene;
    if (scene.peer == nullptr) return;
    REQUIRE(tok_del(scene.home, scene.exported.token).ok());
    const auto write_until = [](uint64_t at, int64_t expected) {
      const Fd file(static_cast<int>(::memfd_create("copy", MFD_CLOEXEC)));
      const Deadline deadline = Deadline::in(20 * kSecond);
      int64_t got = 0;
      do {
        got = result(::write(file.get(), reinterpret_cast<void*>(at), 8));
      } while (got != expected && !deadline.passed());
      return got;
    };
    // Nothing but system calls comes there, so that no handler takes the poison away.
    CHECK(scene.peer->run(write_until, scene.import.at, int64_t{-EFAULT}) == -EFAULT);
    const Flat token = tok_new(scene.home, scene.exported.seg, kAllRights);
    REQUIRE(token.ok());
    REQUIRE(set_token(*scene.peer, scene.import.seg, token).ok());
    CHECK(scene.peer->run(write_until, scene.import.at, int64_t{8}) == 8);
  }

  // The thread that takes the fault waits for as long as it may; the one that faults, no longer.
  TEST_CASE("an_access_to_a_silent_home_is_tried_for_one_timeout_and_a_system_call_for_one_more") {
    Scene scene;
    if (scene.peer == nullptr) return;
    REQUIRE(publish(scene.home, scene.exported.at, 7));
    const auto tried = [&] { return scene.peer->run([] { return stats().load_misses; }); };
    const auto write_once = [](uint64_t at) {
      const Fd file(static_cast<int>(::memfd_create("copy", MFD_CLOEXEC)));
      return result(::write(file.get(), reinterpret_cast<void*>(at), 8));
    };
    scene.home.stop();
    const uint64_t before = tried();
    CHECK(load(*scene.peer, scene.import.at).cause() == CMI_ERROR_TRANSIENT);
    CHECK(tried() == before + 1);
    // The next one waits again, whoever it is.
    CHECK(scene.peer->run(write_once, scene.import.at) == -EFAULT);
    CHECK(tried() == before + 2);
    CHECK(load(*scene.peer, scene.import.at).cause() == CMI_ERROR_TRANSIENT);
    scene.home.signal(SIGCONT);
    CHECK(load_until(*scene.peer, scene.import.at, 7) == 7);
    CHECK(scene.peer->run(write_once, scene.import.at) == 8);
  }

  // A wake that comes late is for a fault that is over: it makes the next access to the page fault
  // twice. Both faults are served, and the verdict on one of them is nobody's.
  TEST_CASE("a_verdict_on_an_access_that_is_over_is_not_told_to_the_next_one") {
    Cluster cluster;
    const std::string counts = cluster.scratch() + "/passages";
    const std::string wake = cluster.scratch() + "/wake", tell = cluster.scratch() + "/tell";
    Process& home = cluster.spawn("home");
    Process* peer = spawn_with_fault_threads(
        cluster, {{"CMI_FAULT_COUNT", counts},
                  {"CMI_FAULT_POINT", "mutation_fault_served#1=hold:" + wake +
                                          ";mutation_fault_failed#2=hold:" + tell}});
    if (peer == nullptr) return;
    const Export exported = export_segment(home, kPages * kPage);
    const Import import = import_segment(*peer, exported);
    const auto store_once = [](uint64_t at) { return store64(at, 1).cause(); };
    REQUIRE(load(*peer, import.at).cause() == Fault::kNone);
    home.stop();
    auto first = peer->start(store_once, import.at);
    await_passage(counts, "mutation_fault_begun", 2);
    std::ofstream(wake).put('x');
    await_passage(counts, "mutation_fault_begun", 3);
    await_passage(counts, "mutation_fault_failed", 2);
    std::ofstream(tell).put('x');
    CHECK(first.get() == CMI_ERROR_TRANSIENT);
    home.signal(SIGCONT);
    CHECK(peer->run(store_once, import.at) == Fault::kNone);
  }

  // Of the two faults of a store that faulted twice, one is served when the store is over and has
  // gone home: wherever its thread was held up, nobody stores to the page again for it.
  TEST_CASE("a_fault_of_a_store_that_is_over_does_not_make_its_page_dirty_again") {
    for (const std::string held_up : {"mutation_fault_read", "mutation_fault_begun"}) {
      CAPTURE(held_up);
      Cluster cluster;
      const std::string counts = cluster.scratch() + "/passages";
      const std::string wake = cluster.scratch() + "/wake", store = cluster.scratch() + "/store";
      const std::string late = cluster.scratch() + "/late";
      Process& home = cluster.spawn("home");
      Process* peer = spawn_with_fault_threads(
          cluster,
          {{"CMI_FAULT_COUNT", counts},
           {"CMI_FAULT_POINT", "mutation_fault_served#1=hold:" + wake + ";" + held_up +
                                   "#2=hold:" + store + ";" + held_up + "#3=hold:" + late}});
      if (peer == nullptr) return;
      const Export exported = export_segment(home, kPages * kPage);
      const Import import = import_segment(*peer, exported);
      REQUIRE(load(*peer, import.at).cause() == Fault::kNone);
      auto stored = peer->start([](uint64_t at) { return store64(at, 1).cause(); }, import.at);
      await_passage(counts, held_up, 2);
      std::ofstream(wake).put('x');
      await_passage(counts, held_up, 3);
      std::ofstream(store).put('x');
      CHECK(stored.get() == Fault::kNone);
      CHECK(wmb(*peer).ok());
      std::ofstream(late).put('x');
      await_passage(counts, "mutation_fault_served", 3);
      CHECK(peer->run([] { return stats().store_faults; }) == 1);
      CHECK(load(home, exported.at).value == 1);
    }
  }

  // Its page has nothing behind it that a fault could be served with.
  TEST_CASE("a_fault_that_comes_late_to_another_view_at_its_address_is_dropped") {
    Cluster cluster;
    const std::string counts = cluster.scratch() + "/passages";
    const std::string wake = cluster.scratch() + "/wake", store = cluster.scratch() + "/store";
    const std::string late = cluster.scratch() + "/late";
    Process& home = cluster.spawn("home");
    Process* peer = spawn_with_fault_threads(
        cluster, {{"CMI_FAULT_COUNT", counts},
                  {"CMI_FAULT_POINT", "mutation_fault_served#1=hold:" + wake +
                                          ";mutation_fault_read#2=hold:" + store +
                                          ";mutation_fault_read#3=hold:" + late}});
    if (peer == nullptr) return;
    const Export exported = export_segment(home, kPages * kPage);
    Export through = export_segment(home, kPages * kPage);
    through.handle = seg_exp(home, through.seg, CMI_SEG_WRITE_THROUGH);
    REQUIRE(through.handle.ok());
    const Import import = import_segment(*peer, exported);
    REQUIRE(load(*peer, import.at).cause() == Fault::kNone);
    auto stored = peer->start([](uint64_t at) { return store64(at, 1).cause(); }, import.at);
    await_passage(counts, "mutation_fault_read", 2);
    std::ofstream(wake).put('x');
    await_passage(counts, "mutation_fault_read", 3);
    std::ofstream(store).put('x');
    REQUIRE(stored.get() == Fault::kNone);
    REQUIRE(seg_dt(*peer, import.seg, import.at).ok());
    const Answer other = seg_imp(*peer, through.handle);
    REQUIRE(other.ok());
    REQUIRE(set_token(*peer, other.seg(), through.token).ok());
    const Answer view = seg_at(*peer, other.seg(), import.at);
    REQUIRE(view.ok());
    REQUIRE(view.at() == import.at);
    std::ofstream(late).put('x');
    await_passage(counts, "mutation_fault_of_no_view", 1);
    CHECK(load(*peer, import.at).value == 0);
    CHECK(load(home, exported.at).value == 1);
  }

  TEST_CASE("threads_that_wait_for_a_silent_home_do_not_hold_up_an_access_to_another") {
    constexpr int kWaiting = 12;
    TwoHomes scene(kWaiting * kFarApart);
    if (scene.peer == nullptr) return;
    scene.silent.stop();
    const Beside seen = scene.peer->run(
        [](uint64_t silent, pid_t home, uint64_t elsewhere) {
          return load_beside(silent, home, kWaiting, 4, elsewhere);
        },
        scene.from_silent.at, scene.silent.pid(), scene.from_other.at);
    CHECK(seen.value == 9);
    CHECK(seen.waiting == kWaiting);
    CHECK(seen.right == kWaiting);
  }

  TEST_CASE("fault_threads_that_wait_are_no_more_than_64_and_those_that_are_over_wait_again") {
    constexpr int kWaiting = 80, kMost = 64;
    TwoHomes scene(kWaiting * kFarApart);
    if (scene.peer == nullptr) return;
    const auto fault_threads = [&] { return scene.peer->run([] { return fault_threads_here(); }); };
    int at_first = 0;  // a thread has its name when it has begun
    for (const Deadline deadline = Deadline::in(20 * kSecond);
         at_first < 5 && !deadline.passed();) {
      at_first = fault_threads();
    }
    scene.silent.stop();
    const auto again = [&](uint64_t silent) {
      return scene.peer->run(
          [](uint64_t at, pid_t home, uint64_t elsewhere) {
            return load_beside(at, home, kWaiting, kMost, elsewhere);
          },
          silent, scene.silent.pid(), scene.from_other.at);
    };
    REQUIRE(load(*scene.peer, scene.from_other.at).value == 9);
    const Beside seen = again(scene.from_silent.at);
    CHECK(at_first == 5);
    CHECK(seen.value == 9);
    CHECK(seen.waiting == kWaiting);
    CHECK(seen.fault_threads == kMost);
    CHECK(seen.right == kWaiting);
    // They are there for the next time.
    scene.silent.stop();
    const Beside next = again(scene.from_silent.at + kPage);
    CHECK(next.fault_threads == kMost);
    CHECK(next.right == kWaiting);
  }

  TEST_CASE("what_one_thread_may_not_do_does_not_keep_another_from_its_page") {
    // One thread stores through a read-only view, others load the same page meanwhile.
    Scene scene;
    if (scene.peer == nullptr) return;
    REQUIRE(publish(scene.home, scene.exported.at, 7));
    const Answer view = seg_at(*scene.peer, scene.import.seg, 0, CMI_SEG_READ);
    REQUIRE(view.ok());
    struct Outcome {
      uint64_t refused, wrong;
    };
    const Outcome outcome = scene.peer->run(
        [](uint64_t at) {
          constexpr uint64_t kTimes = 200;
          Outcome all{};
          std::atomic<bool> done{false};
          std::atomic<uint64_t> wrong{0};
          std::vector<std::thread> readers;
          for (int i = 0; i < 3; ++i) {
            readers.emplace_back([&] {
              CMIFN(ctxt(), 10, ini_th)(ctxt());
              CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
              while (!done.load()) {
                const Access access = load64(at);
                wrong.fetch_add(access.value != 7 || access.cause() != Fault::kNone);
              }
              CMIFN(ctxt(), 10, fini)(ctxt());
            });
          }
          for (uint64_t i = 0; i < kTimes; ++i) {
            all.refused += store64(at, 8).cause() == CMI_ERROR_ACCESS;
          }
          done.store(true);
          for (std::thread& reader : readers) reader.join();
          all.wrong = wrong.load() + (kTimes - all.refused);
          return all;
        },
        view.at());
    CHECK(outcome.refused == 200);
    CHECK(outcome.wrong == 0);
  }
}

}  // namespace

}  // namespace cmi::test::fault_threads_nodes_test
