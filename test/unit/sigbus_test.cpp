// A SIGBUS that somebody sends while the only thread that takes it is in the library.
#include "core/memory/vm/sigbus.hpp"

#include <doctest/doctest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "core/base/lock.hpp"

namespace cmi::test::sigbus_test {

namespace {

struct Taken {
  std::atomic<int> times{0}, code{0};
  std::atomic<pid_t> by{0}, sender{0};
};
Taken g_taken;

void take(int, siginfo_t* si, void*) {
  ++g_taken.times;
  g_taken.code = si->si_code;
  g_taken.by = ::gettid();
  g_taken.sender = si->si_pid;
}

// A context without views.
class NoViews final : public memory::FaultTarget {
 public:
  std::shared_ptr<const memory::View> view_at(const void*) override { return nullptr; }
  memory::Exception on_fault(const memory::View&, const std::byte*, bool, bool) override {
    return memory::Exception::kNotOurs;
  }
  void on_lease_alarm() override {}
  emulate::Stop on_write_through(const memory::View&, const std::byte*, ucontext_t&) override {
    return {};
  }
  memory::Exception try_access(const memory::View&, const std::byte*, bool,
                               const memory::PageSeen*) override {
    return memory::Exception::kNotOurs;
  }
};

// The client's handler, below the library's.
class Handlers {
 public:
  Handlers() {
    struct sigaction client = {};
    client.sa_sigaction = take;
    client.sa_flags = SA_SIGINFO;
    REQUIRE(::sigaction(SIGBUS, &client, &former_) == 0);
    memory::set_fault_target(&none_);
  }
  ~Handlers() {
    memory::set_fault_target(nullptr);
    ::sigaction(SIGBUS, &former_, nullptr);
  }
  Handlers(const Handlers&) = delete;
  Handlers& operator=(const Handlers&) = delete;

 private:
  NoViews none_;
  struct sigaction former_ = {};
};

void mask_sigbus(int how) {
  sigset_t bus;
  sigemptyset(&bus);
  sigaddset(&bus, SIGBUS);
  pthread_sigmask(how, &bus, nullptr);
}

}  // namespace

TEST_CASE("a_sigbus_by_kill_that_finds_a_thread_in_the_library_is_taken_when_it_leaves") {
  const Handlers handlers;
  mask_sigbus(SIG_BLOCK);  // of the first thread: the other one is the only one that can take it
  int meanwhile = -1;
  pid_t other = 0;
  std::thread([&] {
    other = ::gettid();
    mask_sigbus(SIG_UNBLOCK);
    const SignalsBlocked in_the_library;
    ::kill(::getpid(), SIGBUS);  // returns when it has been delivered
    meanwhile = g_taken.times;
  }).join();
  mask_sigbus(SIG_UNBLOCK);
  CHECK(meanwhile == 0);
  CHECK(g_taken.times == 1);
  CHECK(g_taken.by == other);
  CHECK(g_taken.code == SI_USER);
  CHECK(g_taken.sender == ::getpid());
}

}  // namespace cmi::test::sigbus_test
