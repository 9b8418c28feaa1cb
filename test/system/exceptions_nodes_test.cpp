// CMI exceptions as the client's own SIGSEGV handler sees them.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "core/base/clock.hpp"
#include "core/base/fd.hpp"
#include "system/calls.hpp"

namespace cmi::test::exceptions_nodes_test {

namespace {

TEST_SUITE("fault") {
  TEST_CASE("an_exception_tells_code_cause_address_segment_and_pc") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Import import = import_bare(peer, export_segment(home));
    REQUIRE(cmi_enb(peer, 1).ok());
    const CodeRange code = peer.run([] { return access_code(); });
    for (const uint64_t off : {uint64_t{0}, uint64_t{8}, uint64_t{13}, 3 * kPage + 5}) {
      const Fault fault = peer.run([](uint64_t at) { return load8(at).fault; }, import.at + off);
      CHECK(fault.signal == SIGSEGV);
      CHECK(fault.code == SEGV_CMI);
      CHECK(fault.error == CMI_ERROR_TOKEN);
      CHECK(fault.address == import.at + off);
      CHECK(fault.id == import.seg);
      CHECK(code.holds(fault.pc));
      CHECK(fault.pc == fault.context_pc);
      CHECK(fault.times == 1);
    }
    const Fault fault = store(peer, import.at + 2 * kPage + 24, 1).fault;
    CHECK(fault.error == CMI_ERROR_TOKEN);
    CHECK(fault.address == import.at + 2 * kPage + 24);
    CHECK(fault.id == import.seg);
    CHECK(code.holds(fault.pc));
  }

  TEST_CASE("every_cause_has_its_own_si_errno") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, 4 * kPage, CMI_ACC_READ);
    const Import import = import_bare(peer, exported);
    CHECK(load(peer, import.at).cause() == CMI_ERROR_ENABLE);
    REQUIRE(cmi_enb(peer, 1).ok());
    CHECK(load(peer, import.at).cause() == CMI_ERROR_TOKEN);
    REQUIRE(set_token(peer, import.seg, exported.token).ok());
    CHECK(load(peer, import.at).cause() == Fault::kNone);
    CHECK(store(peer, import.at, 1).cause() == CMI_ERROR_ACCESS);
    REQUIRE(seg_rm(home, exported.seg).ok());
    REQUIRE(seg_dt(home, exported.seg, exported.at).ok());
    CHECK(load(peer, import.at).cause() == CMI_ERROR_SINVAL);
  }

  TEST_CASE("a_store_through_a_read_only_view_of_an_import_raises_access_error") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    const Answer view = seg_at(peer, import.seg, 0, CMI_SEG_READ);
    REQUIRE(view.ok());
    const Fault absent = store(peer, view.at() + kPage + 8, 1).fault;
    CHECK(absent.cause() == CMI_ERROR_ACCESS);
    CHECK(absent.address == view.at() + kPage + 8);
    CHECK(absent.id == import.seg);
    CHECK(load(peer, view.at()).cause() == Fault::kNone);
    CHECK(store(peer, view.at(), 1).cause() == CMI_ERROR_ACCESS);  // cached by now
    REQUIRE(publish(peer, import.at, 2));
    CHECK(store(peer, view.at(), 1).cause() == CMI_ERROR_ACCESS);
    CHECK(load(home, exported.at).value == 2);
    CHECK(load(home, exported.at + kPage + 8).value == 0);
  }

  TEST_CASE("a_store_without_the_write_right_raises_access_error") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home, 4 * kPage, CMI_ACC_READ | CMI_ACC_ATOMIC);
    const Import import = import_segment(peer, exported);
    CHECK(store(peer, import.at + kPage, 1).cause() == CMI_ERROR_ACCESS);  // not cached
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    CHECK(store(peer, import.at, 1).cause() == CMI_ERROR_ACCESS);
    CHECK(wmb(peer).ok());
    CHECK(load(home, exported.at).value == 0);
    CHECK(load(home, exported.at + kPage).value == 0);
  }

  TEST_CASE("a_removed_segment_raises_token_error_while_attached_at_home") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    Process& bare = cluster.spawn("bare");
    const Export exported = export_segment(home);
    const Import import = import_segment(peer, exported);
    const Import unset = import_bare(bare, exported);
    REQUIRE(cmi_enb(bare, 1).ok());
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    REQUIRE(seg_rm(home, exported.seg).ok());
    CHECK(load(peer, import.at).cause() == CMI_ERROR_TOKEN);
    CHECK(store(peer, import.at, 1).cause() == CMI_ERROR_TOKEN);
    CHECK(load(peer, import.at + kPage).cause() == CMI_ERROR_TOKEN);
    CHECK(store(peer, import.at + 2 * kPage, 1).cause() == CMI_ERROR_TOKEN);
    CHECK(load(bare, unset.at).cause() == CMI_ERROR_TOKEN);
    CHECK(store(bare, unset.at + kPage, 1).cause() == CMI_ERROR_TOKEN);
  }

  TEST_CASE("a_removed_segment_raises_sinval_after_the_last_home_detach") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& second = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Answer view = seg_at(second, exported.seg);
    REQUIRE(view.ok());
    const Import import = import_segment(peer, exported);
    REQUIRE(load(peer, import.at).cause() == Fault::kNone);
    REQUIRE(seg_rm(home, exported.seg).ok());
    REQUIRE(seg_dt(home, exported.seg, exported.at).ok());
    CHECK(load(peer, import.at).cause() == CMI_ERROR_TOKEN);
    REQUIRE(seg_dt(second, exported.seg, view.at()).ok());
    CHECK(load(peer, import.at).cause() == CMI_ERROR_SINVAL);
    CHECK(store(peer, import.at + kPage, 1).cause() == CMI_ERROR_SINVAL);
  }

  TEST_CASE("sinval_is_never_raised_at_home") {
    Cluster cluster;
    Process& maker = cluster.spawn("home");
    Process& other = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(maker);
    const Answer view = seg_at(other, exported.seg);
    REQUIRE(view.ok());
    REQUIRE(import_segment(peer, exported).seg > 0);
    REQUIRE(seg_rm(maker, exported.seg).ok());
    CHECK(store(other, view.at(), 1).cause() == Fault::kNone);
    maker.kill();
    const int faults = other.run(
        [](uint64_t at, size_t size) {
          int count = 0;
          for (uint64_t page = at; page < at + size; page += kPage) {
            count += store64(page, 3).cause() != Fault::kNone;
            count += load64(page).value != 3;
          }
          return count;
        },
        view.at(), exported.size);
    CHECK(faults == 0);
    CHECK(wmb(other).ok());
  }

  TEST_CASE("returning_from_the_handler_retries_the_access") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    REQUIRE(publish(home, exported.at, 91));
    const Import import = import_bare(peer, exported);

    // The handler enables access itself; then another thread sets the token while it waits.
    static std::atomic<int> asked{0};
    const Access access = peer.run(
        [](cmi_seg seg, uint64_t at, Flat token) {
          asked = 0;
          std::thread setter([seg, &token] {
            CMIFN(ctxt(), 10, ini_th)(ctxt());
            while (asked.load() == 0) std::this_thread::yield();
            // The importer is the process, so any of its threads may do this.
            cmi_ds ds{};
            ds.token.tok = token.as<cmi_token>();
            asked = CMIFN(ctxt(), 10, seg_ctl)(ctxt(), seg, CMI_SEG_TOKEN, &ds) == 0 ? 2 : 3;
            CMIFN(ctxt(), 10, fini)(ctxt());
          });
          set_on_fault([](const Fault& fault) {
            if (fault.times > 10) return false;
            if (fault.error == CMI_ERROR_ENABLE) return CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1) == 0;
            int expected = 0;
            asked.compare_exchange_strong(expected, 1);
            const Deadline deadline = Deadline::in(10 * kSecond);
            while (asked.load() == 1 && !deadline.passed()) std::this_thread::yield();
            return asked.load() == 2;
          });
          const Access result = load64(at);
          set_on_fault(nullptr);
          asked = 1;
          setter.join();
          return result;
        },
        import.seg, import.at, exported.token);
    CHECK(access.value == 91);
    CHECK(access.fault.times == 2);  // ENABLE, then TOKEN
  }

  TEST_CASE("siglongjmp_abandons_the_access") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export exported = export_segment(home);
    const Import import = import_bare(peer, exported);
    REQUIRE(cmi_enb(peer, 1).ok());
    const int other = peer.run(
        [](uint64_t at) {
          int count = 0;
          for (uint64_t i = 0; i < 1000; ++i) {
            const uint64_t word = at + i % 16 * kPage + i % 500 * 8;
            const Fault fault = i % 2 == 0 ? load64(word).fault : store64(word, i).fault;
            count += fault.cause() != CMI_ERROR_TOKEN || fault.address != word;
          }
          return count;
        },
        import.at);
    CHECK(other == 0);
    REQUIRE(set_token(peer, import.seg, exported.token).ok());
    CHECK(publish(peer, import.at, 92));
    CHECK(load(home, exported.at).value == 92);
    CHECK(load(home, exported.at + kPage).value == 0);
  }

  PROCESS_CASE("without_a_handler_the_process_dies_by_sigsegv") {
    enum How { kDefault, kIgnored, kBlocked, kNewThread };
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home);
    for (const How how : {kDefault, kIgnored, kBlocked, kNewThread}) {
      CAPTURE(how);
      // As every client: whatever handlers the libraries below install come with the first context.
      Process& peer = cluster.spawn_bare("peer");
      peer.run([] { ::signal(SIGSEGV, SIG_DFL); });
      REQUIRE(ini(peer).ok());
      const Import import = import_bare(peer, exported);
      peer.start(
          [](int way, uint64_t at) {
            if (way == kIgnored) ::signal(SIGSEGV, SIG_IGN);
            sigset_t set;
            sigemptyset(&set);
            sigaddset(&set, SIGSEGV);
            if (way == kBlocked) ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
            const auto touch = [at] { return *reinterpret_cast<volatile uint64_t*>(at); };
            if (way == kNewThread) {
              std::thread(touch).join();
              return uint64_t{0};
            }
            return touch();
          },
          static_cast<int>(how), import.at);
      const int status = peer.wait_end();
      CHECK_MESSAGE(died_by(status, SIGSEGV), describe_status(status));
    }
  }

  PROCESS_CASE("a_process_that_dies_of_an_exception_says_so_in_one_line_unless_it_shall_not") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home);
    for (const bool on : {true, false}) {
      CAPTURE(on);
      const Fd errors(::memfd_create("errors", MFD_CLOEXEC));
      REQUIRE(errors);
      Process& peer = cluster.spawn_bare("peer", {{"CMI_FATAL_LINE", on ? "on" : "off"}});
      peer.run([] { ::signal(SIGSEGV, SIG_DFL); });
      REQUIRE(ini(peer).ok());
      const Import import = import_bare(peer, exported);
      peer.start(
          [](int owner, int fd, uint64_t at) {
            const std::string path = fmt::format("/proc/{}/fd/{}", owner, fd);
            ::dup2(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC), STDERR_FILENO);
            return *reinterpret_cast<volatile uint64_t*>(at);
          },
          static_cast<int>(::getpid()), errors.get(), import.at + 8);
      const int status = peer.wait_end();
      CHECK_MESSAGE(died_by(status, SIGSEGV), describe_status(status));
      char line[1024];
      const ssize_t n = ::pread(errors.get(), line, sizeof line, 0);
      REQUIRE(n >= 0);
      const std::string said(line, static_cast<size_t>(n));
      if (!on) {
        CHECK(said.find("CMI_ERROR") == std::string::npos);
        continue;
      }
      const std::string wanted = fmt::format(
          "libcmi: CMI_ERROR_ENABLE at {:#x} in segment {}: ", import.at + 8, import.seg);
      CHECK_MESSAGE(said.starts_with(wanted), said);
      CHECK(std::count(said.begin(), said.end(), '\n') == 1);
    }
  }

  TEST_CASE("other_threads_go_on_while_one_gets_an_exception") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer = cluster.spawn("peer");
    const Export good = export_segment(home);
    REQUIRE(publish(home, good.at, 93));
    const Import open = import_segment(peer, good);
    const Import closed = import_bare(peer, export_segment(home));
    struct Seen {
      uint64_t loads;
      uint64_t wrong;
      uint64_t exceptions;
    };
    const Seen seen = peer.run(
        [](uint64_t fine, uint64_t bad) {
          std::atomic<bool> over{false};
          Seen result{0, 0, 0};
          // Not the process's first thread, which takes what is meant for no thread.
          std::thread raiser([&] {
            CMIFN(ctxt(), 10, ini_th)(ctxt());
            CMIFN(ctxt(), 10, cmi_enb)(ctxt(), 1);
            for (int i = 0; i < 500; ++i) {
              result.exceptions += load64(bad).cause() == CMI_ERROR_TOKEN;
            }
            CMIFN(ctxt(), 10, fini)(ctxt());
            over = true;
          });
          do {
            const Access access = load64(fine);
            result.wrong += access.value != 93 || access.cause() != Fault::kNone;
            result.wrong += store64(fine + kPage + 8, ++result.loads).cause() != Fault::kNone;
          } while (!over.load());
          raiser.join();
          return result;
        },
        open.at, closed.at);
    CHECK(seen.exceptions == 500);
    CHECK(seen.wrong == 0);
    CHECK(seen.loads > 0);
  }

  TEST_CASE("a_handler_installed_before_or_after_cmi_ini_gets_exceptions") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    const Export exported = export_segment(home);
    Process& before = cluster.spawn("before");  // the server has installed it at its start
    CHECK(load(before, import_bare(before, exported).at).cause() == CMI_ERROR_ENABLE);
    Process& after = cluster.spawn_bare("after");
    after.run([] { ::signal(SIGSEGV, SIG_DFL); });
    REQUIRE(ini(after).ok());
    after.run([] { install_guard(); });
    CHECK(load(after, import_bare(after, exported).at).cause() == CMI_ERROR_ENABLE);
  }

  TEST_CASE("each_cause_is_told_apart_in_loads_stores_swaps_and_cflush") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& ending = cluster.spawn("ending");
    Process& dying =
        cluster.spawn("dying", {{"CMI_FAULT_POINT", "publish_before_send=delay:60000000"}});
    Process& peer = cluster.spawn("peer");
    const Export in_flux = export_segment(home, 4 * kPage);
    const Export empty = export_segment(home, 4 * kPage, kAllRights, CMI_SEG_EXTENSIBLE);
    const Import without_token = import_bare(peer, export_segment(home));
    const Import gone = import_segment(peer, export_segment(ending));
    const Import past_break = import_segment(peer, empty);
    const Import read_only = import_segment(peer, export_segment(home, 4 * kPage, CMI_ACC_READ));
    const Import torn = import_segment(peer, in_flux);
    REQUIRE(store(dying, import_segment(dying, in_flux).at, 1).cause() == Fault::kNone);
    dying.kill();
    ending.kill();
    const auto text = [](const std::array<int, 4>& of) {
      return fmt::format("{}", fmt::join(of, " "));
    };
    const auto causes = [&](uint64_t at) {
      const std::array<int, 4> seen = peer.run(
          [](uint64_t address) {
            uint64_t old = 0;
            void* line = reinterpret_cast<void*>(address);
            auto swap = [&] {
              CMIFN(ctxt(), 10, atm_cas)(ctxt(), static_cast<uint64_t*>(line), 0, 1, &old);
            };
            auto flush = [&] { (void)CMIFN(ctxt(), 10, cflush)(ctxt(), &line, 1); };
            return std::array<int, 4>{load64(address).cause(), store64(address, 1).cause(),
                                      guarded(swap).cause(), guarded(flush).cause()};
          },
          at);
      return text(seen);
    };
    const auto all = [&](int cause) { return text({cause, cause, cause, cause}); };
    for (const Deadline deadline = Deadline::in(20 * kSecond);
         load(peer, torn.at).cause() != CMI_ERROR_CONSIST && !deadline.passed();) {
    }
    CHECK(causes(torn.at) == all(CMI_ERROR_CONSIST));
    CHECK(causes(without_token.at) == all(CMI_ERROR_TOKEN));
    CHECK(causes(gone.at) == all(CMI_ERROR_SINVAL));
    CHECK(causes(past_break.at) == all(CMI_ERROR_SEG_BRK));
    // A line that may not be stored to holds nothing to flush.
    CHECK(causes(read_only.at) ==
          text({Fault::kNone, CMI_ERROR_ACCESS, CMI_ERROR_ACCESS, Fault::kNone}));
  }

  // The first to hear of it may be whoever faults.
  TEST_CASE("once_one_access_has_told_of_the_end_of_a_home_so_do_all_others") {
    Cluster cluster;
    Process& home = cluster.spawn("home");
    Process& peer =
        cluster.spawn("peer", {{"CMI_FAULT_POINT", "mutation_lost_home_window=delay:300000"}});
    const Import import = import_segment(peer, export_segment(home));
    home.kill();
    const auto causes = peer.run(
        [](uint64_t at) {
          uint64_t old = 0;
          void* line = reinterpret_cast<void*>(at);
          auto flush = [&] { (void)CMIFN(ctxt(), 10, cflush)(ctxt(), &line, 1); };
          auto swap = [&] {
            CMIFN(ctxt(), 10, atm_cas)(ctxt(), static_cast<uint64_t*>(line), 0, 1, &old);
          };
          return std::array<int, 4>{load64(at).cause(), guarded(flush).cause(),
                                    guarded(swap).cause(), store64(at, 1).cause()};
        },
        import.at);
    for (const int cause : causes) CHECK(cause == CMI_ERROR_SINVAL);
  }
}

}  // namespace

}  // namespace cmi::test::exceptions_nodes_test
