// What the parts of an importer share, each alone: the table of imports, open write-backs, threads
// with access, dirty pages, fetches that were given up.
#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "core/memory/importer/dirty_count.hpp"
#include "core/memory/importer/enabled_threads.hpp"
#include "core/memory/importer/import_table.hpp"
#include "core/memory/importer/stranded_fetches.hpp"
#include "core/memory/importer/write_backs.hpp"
#include "core/memory/vm/sigbus.hpp"

namespace cmi::test::importer_core_test {
using namespace cmi::memory;

namespace {

constexpr ContextId kHome{1, 2}, kOther{3, 4};

std::shared_ptr<Import> import_of(const ContextId& home, uint64_t uid, int32_t id = 0) {
  ImportFacts facts;
  facts.id = id;
  facts.rseg.home = home;
  facts.rseg.uid = uid;
  facts.pages = 8;
  facts.ours = true;
  return std::make_shared<Import>(std::move(facts));
}

// The calling thread's access, as cmi_enb sets it.
struct Access {
  explicit Access(EnabledThreads& to) : threads(to), before(t_access_enabled) {
    threads.add();
    t_access_enabled = true;
  }
  ~Access() {
    t_access_enabled = before;
    (void)threads.remove();
  }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
  EnabledThreads& threads;
  const bool before;
};

}  // namespace

TEST_SUITE("import_table") {
  TEST_CASE("an_import_is_found_under_the_names_that_its_home_uses") {
    ImportTable table;
    const auto a = import_of(kHome, 7), b = import_of(kHome, 7);
    table.add(a);
    table.add(b);
    CHECK(a->instance != b->instance);
    CHECK(table.find(kHome, 7, a->instance) == a);
    CHECK(table.find(kHome, 7, b->instance) == b);
    CHECK(table.find(kOther, 7, a->instance) == nullptr);
    CHECK(table.find(kHome, 8, a->instance) == nullptr);
    table.remove(a);
    CHECK(table.find(kHome, 7, a->instance) == nullptr);
    CHECK(table.find(kHome, 7, b->instance) == b);
  }
  TEST_CASE("no_instance_is_given_twice") {
    ImportTable table;
    const auto first = import_of(kHome, 7), second = import_of(kHome, 7);
    table.add(first);
    table.remove(first);
    table.add(second);
    CHECK(second->instance != first->instance);
  }
  TEST_CASE("imports_with_dirty_pages_are_met_once_each_in_order") {
    ImportTable table;
    std::vector<std::shared_ptr<Import>> imports;
    for (uint64_t i = 0; i < 4; ++i) {
      imports.push_back(import_of(kHome, i));
      table.add(imports.back());
    }
    CHECK(table.next_dirty(0) == nullptr);
    imports[1]->dirty.listed.add(5);
    imports[3]->dirty.hot.add(5);
    const auto first = table.next_dirty(0);
    CHECK(first == imports[1]);
    CHECK(table.next_dirty(first->instance) == imports[3]);
    CHECK(table.next_dirty(imports[3]->instance) == nullptr);
  }
  TEST_CASE("an_import_that_comes_while_the_lease_is_over_says_so") {
    ImportTable table;
    const auto before = import_of(kHome, 1), other = import_of(kOther, 1);
    table.add(before);
    table.add(other);
    CHECK(table.set_lease_expired(kHome, true).size() == 1);
    const auto after = import_of(kHome, 2);
    table.add(after);
    CHECK(before->lease.is_over());
    CHECK(after->lease.is_over());
    CHECK_FALSE(other->lease.is_over());
    CHECK(table.set_lease_expired(kHome, false).size() == 2);
    CHECK_FALSE(before->lease.is_over());
    CHECK_FALSE(after->lease.is_over());
  }
  TEST_CASE("the_next_end_of_a_lease_is_the_first_that_is_not_noted_to_have_passed") {
    ImportTable table;
    const auto of_home = import_of(kHome, 1), of_other = import_of(kOther, 1);
    table.add(of_home);
    table.add(of_other);
    const Nanos soon = now() + 1000 * kSecond, later = soon + kSecond;
    table.set_lease_end(kHome, later);
    CHECK(table.next_lease_end() == later);
    table.set_lease_end(kOther, soon);
    CHECK(table.next_lease_end() == soon);
    CHECK_FALSE(of_other->lease.is_over());
    CHECK_FALSE(of_other->lease.is_over_at(soon - 1));
    CHECK(of_other->lease.is_over_at(soon));
    // What another home says takes no alarm back that has not been taken yet.
    const Nanos passed = now() - kSecond;
    table.set_lease_end(kOther, passed);
    table.set_lease_end(kHome, later + 1);
    CHECK(table.next_lease_end() == passed);
    CHECK(of_other->lease.is_over());
    CHECK_FALSE(of_home->lease.is_over());
    (void)table.set_lease_expired(kOther, true);
    CHECK(table.next_lease_end() == later + 1);
    // It is to be in force again.
    table.set_lease_end(kOther, soon);
    CHECK(table.next_lease_end() == soon);
    (void)table.set_lease_expired(kOther, false);
    table.set_lease_end(kOther, passed);
    const auto after = import_of(kOther, 2);
    table.add(after);
    CHECK(after->lease.is_over());
    (void)table.set_lease_expired(kOther, true);
    (void)table.set_lease_expired(kHome, true);
    table.set_lease_end(kHome, passed);
    CHECK(table.next_lease_end() == 0);
  }
  TEST_CASE("a_lease_that_has_passed_alarms_nobody_where_nothing_is_imported") {
    ImportTable table;
    table.set_lease_end(kOther, now() - kSecond);
    CHECK(table.next_lease_end() == 0);
    const auto imp = import_of(kOther, 1);
    table.add(imp);
    CHECK(table.next_lease_end() != 0);
    table.remove(imp);
    CHECK(table.next_lease_end() == 0);
  }
  TEST_CASE("a_home_that_is_lost_has_no_lease_to_wait_for") {
    ImportTable table;
    (void)table.set_lease_expired(kHome, true);
    table.set_lease_end(kHome, now() - kSecond);
    table.forget_lease(kHome);
    CHECK(table.next_lease_end() == 0);
    const auto imp = import_of(kHome, 1);
    table.add(imp);
    CHECK_FALSE(imp->lease.is_over());
  }
  TEST_CASE("what_is_marked_for_deletion_has_no_pages_of_ours") {
    ImportTable table;
    const auto imp = import_of(kHome, 1, 42);
    table.add(imp);
    CHECK(table.pages_of_ours(42) == 8);
    CHECK(table.pages_of_ours(41) == 0);
    imp->events.marked.store(true);
    CHECK(table.pages_of_ours(42) == 0);
  }
}

TEST_SUITE("write_backs") {
  TEST_CASE("a_write_back_is_open_until_its_last_part_ends") {
    WriteBacks table;
    const auto imp = import_of(kHome, 1);
    const auto write_back = table.begin(imp);
    write_back->parts.fetch_add(1);  // a message
    CHECK(table.count() == 1);
    CHECK_FALSE(table.end_part(write_back));
    CHECK(table.open() == std::vector<WriteBackPtr>{write_back});
    CHECK(table.end_part(write_back));
    CHECK(table.open().empty());
    CHECK(table.count() == 0);
    CHECK_FALSE(write_back->done.done());  // whoever ended it completes it
  }
  TEST_CASE("they_are_numbered_as_they_begin_and_end_in_any_order") {
    WriteBacks table;
    const auto imp = import_of(kHome, 1);
    const auto a = table.begin(imp), b = table.begin(imp), c = table.begin(imp);
    CHECK(a->seq < b->seq);
    CHECK(b->seq < c->seq);
    CHECK(table.end_part(b));
    CHECK(table.open() == std::vector<WriteBackPtr>{a, c});
    uint64_t next = 0;
    table.with_next([&](uint64_t n) { next = n; });
    CHECK(next > c->seq);
    CHECK(table.begin(imp)->seq == next);
  }
  TEST_CASE("it_names_the_token_that_was_presented_when_it_began") {
    WriteBacks table;
    const auto imp = import_of(kHome, 1);
    imp->token.set_taken(5);
    const auto write_back = table.begin(imp);
    imp->token.set_taken(6);
    CHECK(write_back->token == 5);
    CHECK(table.end_part(write_back));
  }
}

TEST_SUITE("enabled_threads") {
  TEST_CASE("only_the_last_thread_that_goes_closes_the_views") {
    EnabledThreads threads;
    threads.add();
    std::thread([&] {
      threads.add();
      CHECK_FALSE(threads.remove());
    }).join();
    CHECK(threads.remove());
  }
  TEST_CASE("a_fault_is_served_in_the_name_of_its_thread") {
    EnabledThreads threads;
    CHECK_FALSE(threads.begin_serving());
    threads.end_serving();
    threads.add();
    CHECK(threads.begin_serving(gettid()));
    threads.end_serving();
    CHECK_FALSE(threads.begin_serving(gettid() + 1));
    threads.end_serving();
    CHECK(threads.begin_serving());
    threads.end_serving();
    CHECK(threads.remove());
    threads.await_served();  // nothing is served any more: it returns
  }
  TEST_CASE("what_is_being_served_is_waited_for") {
    EnabledThreads threads;
    threads.add();
    REQUIRE(threads.begin_serving(gettid()));
    CHECK(threads.remove());
    std::atomic<bool> ended{false}, seen{false};
    std::thread waiter([&] {
      threads.await_served();
      seen.store(ended.load());
    });
    ended.store(true);
    threads.end_serving();
    waiter.join();
    CHECK(seen.load());
  }
  TEST_CASE("access_is_exclusive_for_the_only_thread_that_has_it") {
    EnabledThreads threads;
    const bool without = ExclusiveAccess(threads).mine();
    CHECK_FALSE(without);
    const Access access(threads);
    CHECK(ExclusiveAccess(threads).mine());
    bool beside = true;
    std::thread([&] {
      const Access second(threads);
      beside = ExclusiveAccess(threads).mine();
    }).join();
    CHECK_FALSE(beside);
  }
  TEST_CASE("another_thread_gets_access_when_the_exclusive_one_is_over") {
    EnabledThreads threads;
    const Access access(threads);
    std::atomic<bool> over{false}, asks{false}, was_over{false};
    std::thread second;
    {
      const ExclusiveAccess exclusive(threads);
      REQUIRE(exclusive.mine());
      second = std::thread([&] {
        asks.store(true);
        threads.add();
        was_over.store(over.load());
        (void)threads.remove();
      });
      const Deadline deadline = Deadline::in(10 * kSecond);
      while (!asks.load() && !deadline.passed()) std::this_thread::yield();
      over.store(true);
    }
    second.join();
    CHECK(was_over.load());
  }
}

TEST_SUITE("dirty_count") {
  TEST_CASE("pages_count_while_they_are_dirty") {
    DirtyCount dirty(true);
    CHECK_FALSE(dirty.any());
    dirty.dirtied();
    dirty.dirtied();
    dirty.cleaned_one();
    CHECK(dirty.any());
    CHECK(dirty.cleaned() == 1);
    dirty.cleaned_one();
    CHECK_FALSE(dirty.any());
    CHECK(dirty.cleaned() == 2);
  }
}

TEST_SUITE("stranded_fetches") {
  TEST_CASE("pages_are_free_when_the_life_of_their_session_is_over") {
    StrandedFetches stranded;
    const auto imp = import_of(kHome, 1);
    auto ended = std::make_shared<int>(), lives = std::make_shared<int>();
    stranded.add({ended, imp, {3, 2}});
    stranded.add({lives, imp, {7, 1}});
    CHECK(stranded.take_free().empty());
    ended.reset();
    const auto free = stranded.take_free();
    REQUIRE(free.size() == 1);
    CHECK(free[0].pages.first == 3);
    CHECK(stranded.any());
    CHECK(stranded.take_free().empty());
    lives.reset();
    CHECK(stranded.take_free().size() == 1);
    CHECK_FALSE(stranded.any());
  }
}

}  // namespace cmi::test::importer_core_test
