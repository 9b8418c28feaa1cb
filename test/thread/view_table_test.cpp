// Readers of the table of views race with changes of it.
#include "core/memory/vm/view_table.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/ids.hpp"

namespace cmi::test::view_table_test {
using namespace cmi::memory;

namespace {

std::byte* at(size_t page) {
  return reinterpret_cast<std::byte*>(uintptr_t{0x7000'0000'0000} + page * kPageSize);
}

std::shared_ptr<const View> view(size_t first) {
  auto v = std::make_shared<View>();
  v->addr = at(first);
  v->len = kPageSize;
  v->segment = static_cast<int32_t>(first);
  return v;
}

}  // namespace

TEST_CASE("readers_find_what_stays_and_never_what_is_wrong_while_views_come_and_go") {
  constexpr size_t kViews = 16;  // even ones stay
  constexpr int kChanges = 1500, kWriters = 2, kReaders = 2;
  ViewTable table;
  for (size_t i = 0; i < kViews; i += 2) table.insert(view(i));
  std::atomic<int> writing{kWriters}, missing{0}, wrong{0}, unerased{0};
  std::atomic<long> found{0};
  const Deadline deadline = Deadline::in(60 * kSecond);

  std::vector<std::thread> threads;
  for (size_t w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      // Each writer has odd places of its own.
      for (int n = 0; (n < kChanges || found.load() < kChanges) && !deadline.passed(); ++n) {
        const size_t place = 1 + 4 * (static_cast<size_t>(n) % 4) + 2 * w;
        auto v = view(place);
        table.insert(v);
        if (table.find(at(place)) != v) ++missing;
        table.erase(v);
        if (table.find(at(place)) != nullptr) ++unerased;
        // erase() has waited for the readers of the old table; what they found they own.
      }
      writing.fetch_sub(1);
    });
  }
  for (size_t r = 0; r < kReaders; ++r) {
    threads.emplace_back([&, r] {
      size_t place = r;
      while (writing.load() > 0) {
        place = (place + 7) % kViews;
        auto v = table.find(at(place) + 5);
        if (v == nullptr) {
          if (place % 2 == 0) ++missing;
          continue;
        }
        ++found;
        if (v->segment != static_cast<int32_t>(place) || v->addr != at(place)) ++wrong;
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK_FALSE(deadline.passed());
  CHECK(missing.load() == 0);
  CHECK(wrong.load() == 0);
  CHECK(unerased.load() == 0);
  CHECK(found.load() >= kChanges);
}

TEST_CASE("a_view_is_gone_once_erased_and_unused_though_readers_keep_coming") {
  ViewTable table;
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&] {
      while (!stop.load()) (void)table.find(at(1));
    });
  }
  int alive = 0;
  for (int n = 0; n < 300; ++n) {
    auto v = view(1);
    std::weak_ptr<const View> watch = v;
    table.insert(v);
    table.erase(v);
    v.reset();
    // A reader may still hold its copy for the length of one statement.
    const Deadline deadline = Deadline::in(10 * kSecond);
    while (!watch.expired() && !deadline.passed()) std::this_thread::yield();
    if (!watch.expired()) ++alive;
  }
  stop.store(true);
  for (auto& t : readers) t.join();
  CHECK(alive == 0);
}

}  // namespace cmi::test::view_table_test
