// Whether a thread is the only one of its process.
#include "core/base/single_threaded.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <latch>
#include <thread>

#include "core/base/clock.hpp"
#include "core/base/library_thread.hpp"

using namespace cmi;

namespace {

// A thread that has been joined may be counted for a moment.
bool alone_soon(SingleThreaded& alone) {
  const Deadline deadline = Deadline::in(10 * kSecond);
  while (!alone.now() && !deadline.passed()) std::this_thread::yield();
  return alone.now();
}

}  // namespace

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadBeside = true;  // the sanitizer's own
#else
constexpr bool kThreadBeside = false;
#endif

TEST_SUITE("alone" * doctest::skip(kThreadBeside)) {
  TEST_CASE("a_thread_is_alone_until_another_one_is_there") {
    SingleThreaded alone;
    CHECK_FALSE(alone.now());  // not opened
    alone.open();
    REQUIRE(alone_soon(alone));
    std::promise<void> over;
    std::thread other([&] { over.get_future().wait(); });
    CHECK_FALSE(alone.now());
    over.set_value();
    other.join();
    CHECK(alone_soon(alone));
  }

  TEST_CASE("threads_of_the_library_do_not_count") {
    SingleThreaded alone;
    alone.open();
    std::latch begun(1);
    std::promise<void> over;
    bool alone_here = true;
    std::thread ours([&] {
      const LibraryThread here;
      alone_here = alone.now();
      begun.count_down();
      over.get_future().wait();
    });
    begun.wait();
    CHECK(alone.now());
    CHECK_FALSE(alone_here);  // beside one that is not of the library
    std::promise<void> others_over;
    std::thread other([&] { others_over.get_future().wait(); });
    CHECK_FALSE(alone.now());
    others_over.set_value();
    other.join();
    over.set_value();
    ours.join();
    CHECK(alone_soon(alone));
  }

  // What looks must never take one that is there for one that has gone: threads of the library come
  // and go beside one that is not of the library.
  TEST_CASE("nobody_is_alone_while_threads_of_the_library_come_and_go_beside_another") {
    SingleThreaded alone;
    alone.open();
    std::promise<void> over;
    std::thread other([&] { over.get_future().wait(); });
    std::atomic<bool> stop{false};
    std::thread maker([&] {
      const LibraryThread here;
      while (!stop.load()) std::thread([] { const LibraryThread brief; }).join();
    });
    uint64_t alone_seen = 0;
    for (int i = 0; i < 3000000; ++i) alone_seen += alone.now() ? 1 : 0;
    CHECK(alone_seen == 0);
    stop.store(true);
    maker.join();
    over.set_value();
    other.join();
  }
}
