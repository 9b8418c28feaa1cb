// The kernel's locks on bytes of a file, each through an open description of its own: two stand for
// two processes.
#include "core/node/lock_file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>

#include <string>

#include "core/base/fd.hpp"

namespace cmi::test::lock_file_test {
using namespace cmi::node;

namespace {

struct TwoDescriptions {
  Fd first{::memfd_create("lock_file_test", MFD_CLOEXEC)};
  Fd second{::open(("/proc/self/fd/" + std::to_string(first.get())).c_str(), O_RDWR | O_CLOEXEC)};
};

bool is_blocked(int signal) {
  sigset_t now;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &now);
  return sigismember(&now, signal) == 1;
}

}  // namespace

TEST_SUITE("lock_file") {
  TEST_CASE("a_byte_is_locked_for_the_other_description_and_not_for_its_own") {
    TwoDescriptions fds;
    REQUIRE(fds.second);
    CHECK(try_lock_byte(fds.first.get(), kLifeByte));
    CHECK(try_lock_byte(fds.first.get(), kLifeByte));
    CHECK(!byte_locked_elsewhere(fds.first.get(), kLifeByte));
    CHECK(byte_locked_elsewhere(fds.second.get(), kLifeByte));
    CHECK(!byte_locked_elsewhere(fds.second.get(), kLifeByte + 1));
    CHECK(locked_elsewhere(fds.second.get()));
    CHECK(!try_lock_byte(fds.second.get(), kLifeByte));
    CHECK(try_lock_byte(fds.second.get(), kLifeByte + 1));
    unlock_byte(fds.first.get(), kLifeByte);
    CHECK(!locked_elsewhere(fds.second.get()));
    CHECK(try_lock_byte(fds.second.get(), kLifeByte));
  }
  TEST_CASE("a_lock_goes_with_the_last_descriptor_of_its_description") {
    TwoDescriptions fds;
    REQUIRE(fds.second);
    REQUIRE(try_lock_byte(fds.second.get(), kLifeByte));
    Fd copy(::fcntl(fds.second.get(), F_DUPFD_CLOEXEC, 0));
    fds.second.reset();
    CHECK(byte_locked_elsewhere(fds.first.get(), kLifeByte));
    copy.reset();
    CHECK(!byte_locked_elsewhere(fds.first.get(), kLifeByte));
  }
  TEST_CASE("a_descriptor_that_cannot_be_asked_declares_nobody_dead") {
    CHECK(byte_locked_elsewhere(-1, kLifeByte));
    CHECK(locked_elsewhere(-1));
  }
  TEST_CASE("one_holds_the_exclusive_lock_and_a_single_try_does_not_wait_for_it") {
    TwoDescriptions fds;
    REQUIRE(fds.second);
    LockFile ours{fds.first.get(), {}}, theirs{fds.second.get(), {}};
    {
      const Exclusive held(ours, Deadline::in(kLockWait));
      REQUIRE(held);
      CHECK(t_exclusive == &held);
      CHECK(!Exclusive(theirs, Deadline{}));
      CHECK(t_exclusive == &held);
    }
    CHECK(t_exclusive == nullptr);
    CHECK(static_cast<bool>(Exclusive(theirs, Deadline{})));
    CHECK(static_cast<bool>(Exclusive(ours, Deadline{})));
  }
  TEST_CASE("signals_are_blocked_exactly_while_the_lock_is_held") {
    TwoDescriptions fds;
    REQUIRE(fds.second);
    LockFile ours{fds.first.get(), {}};
    REQUIRE(!is_blocked(SIGUSR1));
    {
      const Exclusive held(ours, Deadline::in(kLockWait));
      REQUIRE(held);
      CHECK(is_blocked(SIGUSR1));
    }
    CHECK(!is_blocked(SIGUSR1));
    REQUIRE(try_lock_byte(fds.second.get(), kExclusiveByte));
    const Exclusive refused(ours, Deadline{});
    CHECK(!refused);
    CHECK(!is_blocked(SIGUSR1));
  }
}

}  // namespace cmi::test::lock_file_test
