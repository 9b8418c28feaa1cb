// The moves of a page, pair by pair, and its lock as one thread sees it.
#include "core/memory/page/page.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <string>
#include <utility>

namespace cmi::test::page_test {
using namespace cmi::memory;
using S = PageState;

namespace {

struct Move {
  S from, to;
  const char* because;
};

// Derived from the coherence rules alone (doc/design names them by number).
const Move kLegal[] = {
    {S::kAbsent, S::kFetching, "2: a miss, one fetcher"},
    {S::kFetching, S::kClean, "3: delivered and mapped"},
    {S::kFetching, S::kStale, "3: invalidated while it was read"},
    {S::kFetching, S::kDirty, "4: delivered for a store"},
    {S::kFetching, S::kAbsent, "the fetch failed"},
    {S::kStale, S::kFetching, "3: read again"},
    {S::kStale, S::kAbsent, "the fetch failed"},
    {S::kClean, S::kDirty, "4: first store"},
    {S::kClean, S::kAbsent, "9: invalidated"},
    {S::kDirty, S::kWriting, "5: written back"},
    {S::kDirty, S::kClean, "6: nothing differed from the twin"},
    {S::kDirty, S::kZappedDirty, "9: invalidated, an earlier write-back is out"},
    {S::kDirty, S::kZappedWriting, "5, 9: written back and dropped"},
    {S::kDirty, S::kAbsent, "9: invalidated, nothing differed; or the home is lost"},
    {S::kWriting, S::kClean, "7: acknowledged"},
    {S::kWriting, S::kDirty, "7: a store meanwhile"},
    {S::kWriting, S::kZappedWriting, "9: invalidated"},
    {S::kWriting, S::kAbsent, "the home is lost"},
    {S::kZappedDirty, S::kZappedWriting, "9: the earlier write-back is delivered"},
    {S::kZappedDirty, S::kAbsent, "9: nothing differed; or the home is lost"},
    {S::kZappedWriting, S::kAbsent, "9: delivered"},
};

bool listed(S from, S to) {
  for (const Move& m : kLegal) {
    if (m.from == from && m.to == to) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a_page_moves_along_the_rules_and_no_other_way") {
  for (int f = 0; f < kPageStates; ++f) {
    for (int t = 0; t < kPageStates; ++t) {
      const auto from = static_cast<S>(f), to = static_cast<S>(t);
      CAPTURE(page_state_name(from));
      CAPTURE(page_state_name(to));
      CHECK(legal_move(from, to) == listed(from, to));
    }
  }
}

TEST_CASE("a_page_takes_every_legal_move") {
  for (const Move& m : kLegal) {
    CAPTURE(m.because);
    Page page;
    page.state = m.from;
    page.move(m.to);
    CHECK(page.state == m.to);
  }
}

TEST_CASE("every_page_state_can_be_reached_from_absent_and_left_to_it") {
  for (bool forward : {true, false}) {
    std::set<S> seen = {S::kAbsent};
    for (int round = 0; round < kPageStates; ++round) {
      for (int f = 0; f < kPageStates; ++f) {
        for (int t = 0; t < kPageStates; ++t) {
          const auto from = static_cast<S>(f), to = static_cast<S>(t);
          if (legal_move(from, to) && seen.contains(forward ? from : to)) {
            seen.insert(forward ? to : from);
          }
        }
      }
    }
    CAPTURE(forward);
    CHECK(seen.size() == kPageStates);
  }
}

TEST_CASE("page_states_have_names_of_their_own") {
  std::set<std::string> names;
  for (int s = 0; s < kPageStates; ++s) names.insert(page_state_name(static_cast<S>(s)));
  CHECK(names.size() == kPageStates);
}

TEST_CASE("zero_memory_is_a_table_of_absent_unlocked_pages") {
  // Tables of pages are anonymous mappings that nobody initialises.
  alignas(Page) std::byte zero[sizeof(Page)] = {};
  auto* page = reinterpret_cast<Page*>(zero);
  CHECK(page->state == S::kAbsent);
  CHECK(page->locked.load() == 0);
  CHECK_FALSE(bool{page->in_flight});
  CHECK_FALSE(bool{page->listed});
  CHECK(page->twin == 0);
}

TEST_CASE("a_locked_page_can_be_locked_again_after_it_is_unlocked") {
  Page page;
  for (int i = 0; i < 3; ++i) {
    page.lock();
    CHECK(page.locked.load() == 1);
    page.unlock();
    CHECK(page.locked.load() == 0);
  }
}

}  // namespace cmi::test::page_test
