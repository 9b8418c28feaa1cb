// The whole table of what an update does to a cached page, state by state.
#include "core/memory/page/update_decision.hpp"

#include <doctest/doctest.h>

#include <map>
#include <utility>

namespace cmi::test::update_decision_test {

using namespace cmi::memory;
using A = UpdateAction;
using M = UpdateMatch;
using S = PageState;

namespace {

constexpr M kMatches[] = {M::kNext, M::kRepeated, M::kChanged, M::kUnknown};

// From rules 5, 9 and 25 of doc/design/protocol.md.
const std::map<std::pair<S, M>, A> kTable{
    {{S::kAbsent, M::kNext}, A::kDrop},
    {{S::kAbsent, M::kRepeated}, A::kDrop},
    {{S::kAbsent, M::kChanged}, A::kDrop},
    {{S::kAbsent, M::kUnknown}, A::kDrop},
    {{S::kFetching, M::kNext}, A::kDrop},
    {{S::kFetching, M::kRepeated}, A::kDrop},
    {{S::kFetching, M::kChanged}, A::kDrop},
    {{S::kFetching, M::kUnknown}, A::kDrop},
    {{S::kStale, M::kNext}, A::kDrop},
    {{S::kStale, M::kRepeated}, A::kDrop},
    {{S::kStale, M::kChanged}, A::kDrop},
    {{S::kStale, M::kUnknown}, A::kDrop},
    {{S::kClean, M::kNext}, A::kApply},
    {{S::kClean, M::kRepeated}, A::kKeep},
    {{S::kClean, M::kChanged}, A::kUnsubscribe},
    {{S::kClean, M::kUnknown}, A::kDrop},
    {{S::kDirty, M::kNext}, A::kUnsubscribe},
    {{S::kDirty, M::kRepeated}, A::kUnsubscribe},
    {{S::kDirty, M::kChanged}, A::kUnsubscribe},
    {{S::kDirty, M::kUnknown}, A::kUnsubscribe},
    {{S::kWriting, M::kNext}, A::kUnsubscribe},
    {{S::kWriting, M::kRepeated}, A::kUnsubscribe},
    {{S::kWriting, M::kChanged}, A::kUnsubscribe},
    {{S::kWriting, M::kUnknown}, A::kUnsubscribe},
    {{S::kZappedDirty, M::kNext}, A::kDrop},
    {{S::kZappedDirty, M::kRepeated}, A::kDrop},
    {{S::kZappedDirty, M::kChanged}, A::kDrop},
    {{S::kZappedDirty, M::kUnknown}, A::kDrop},
    {{S::kZappedWriting, M::kNext}, A::kDrop},
    {{S::kZappedWriting, M::kRepeated}, A::kDrop},
    {{S::kZappedWriting, M::kChanged}, A::kDrop},
    {{S::kZappedWriting, M::kUnknown}, A::kDrop},
};

template <class Each>
void for_each_case(Each each) {
  for (int s = 0; s < kPageStates; ++s) {
    for (const M match : kMatches) {
      CAPTURE(page_state_name(static_cast<S>(s)));
      CAPTURE(static_cast<int>(match));
      each(static_cast<S>(s), match);
    }
  }
}

}  // namespace

TEST_SUITE("update_decision") {
  TEST_CASE("each_update_is_taken_as_the_table_says") {
    CHECK(kTable.size() == kPageStates * std::size(kMatches));
    for_each_case([](S state, M match) {
      CHECK(decide_update(state, match) == kTable.at({state, match}));
    });
  }

  // What is stored to the page must be neither the client's, which a twin is compared with, nor in
  // a write-back; and a page that is not there cannot be kept.
  TEST_CASE("only_a_clean_page_takes_words_in_or_stays") {
    for_each_case([](S state, M match) {
      const A action = decide_update(state, match);
      if (action == A::kApply || action == A::kKeep) CHECK(state == S::kClean);
      if (action == A::kApply) CHECK(match == M::kNext);
    });
  }

  // A subscription to a page that this node stores to would send updates that are dropped each
  // time.
  TEST_CASE("a_page_that_this_node_changes_is_subscribed_to_no_longer") {
    for_each_case([](S state, M match) {
      const bool changed = may_be_mapped(state) && (state != S::kClean || match == M::kChanged);
      CHECK((decide_update(state, match) == A::kUnsubscribe) == changed);
    });
  }

  // The decision is made when the program is compiled: it has no side effects.
  static_assert(decide_update(S::kClean, M::kNext) == A::kApply);
}

}  // namespace cmi::test::update_decision_test
