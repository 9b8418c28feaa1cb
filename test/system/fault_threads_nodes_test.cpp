// CMI_FAULT=thread: system calls take addresses of imported segments, and errors come as ever. The
// other node tests run in this mode too, under the label thread-mode.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/fd.hpp"
#include "support/skip.hpp"
#include "system/calls.hpp"

namespace cmi::test {

namespace {

constexpr uint64_t kPages = 16;

// Two nodes, the second with threads for its faults; none where that cannot be.
struct Scene {
  Cluster cluster;
  Process& home = cluster.spawn("home");
  Process* peer = nullptr;
  Export exported;
  Import import;

  Scene() {
    Process& bare = cluster.spawn_bare("peer", {{"CMI_FAULT", "thread"}});
    const Answer started = ini(bare);
    if (started.failed(CMI_ERR_NOTSUPP)) {
      skip("no userfaultfd for the faults of system calls, or a kernel before 6.6");
      return;
    }
    REQUIRE(started.ok());
    peer = &bare;
    exported = export_segment(home, kPages * kPage);
    import = import_segment(*peer, exported);
  }
};

// The result of a system call in the process: bytes, or minus errno.
int64_t result(ssize_t got) { return got >= 0 ? got : -errno; }

// write(2) from `at` into a file and read(2) of the file into `to`, `size` bytes.
int64_t copy_through_file(uint64_t at, uint64_t to, uint64_t size) {
  Fd file(static_cast<int>(::memfd_create("copy", MFD_CLOEXEC)));
  const int64_t wrote = result(::write(file.get(), reinterpret_cast<void*>(at), size));
  if (wrote != static_cast<int64_t>(size)) return wrote;
  return result(::pread(file.get(), reinterpret_cast<void*>(to), size, 0));
}

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

}  // namespace cmi::test
