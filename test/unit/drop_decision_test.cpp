// The whole table of what becomes of a page that is taken out of use, state by state.
#include "core/memory/page/drop_decision.hpp"

#include <doctest/doctest.h>

#include <map>
#include <tuple>

namespace cmi::test::drop_decision_test {

using namespace cmi::memory;
using A = DropAction;
using R = DropReason;
using S = PageState;

namespace {

// State, whether a write-back is out, reason. From rules 3, 5, 7 and 9 of doc/design/protocol.md.
const std::map<std::tuple<S, bool, R>, DropDecision> kTable{
    {{S::kAbsent, false, R::kInvalidated}, {A::kKeep, S::kAbsent}},
    {{S::kAbsent, true, R::kInvalidated}, {A::kKeep, S::kAbsent}},
    {{S::kFetching, false, R::kInvalidated}, {A::kMove, S::kStale}},
    {{S::kFetching, true, R::kInvalidated}, {A::kMove, S::kStale}},
    {{S::kStale, false, R::kInvalidated}, {A::kKeep, S::kStale}},
    {{S::kStale, true, R::kInvalidated}, {A::kKeep, S::kStale}},
    {{S::kClean, false, R::kInvalidated}, {A::kMove, S::kAbsent}},
    {{S::kClean, true, R::kInvalidated}, {A::kMove, S::kAbsent}},
    {{S::kDirty, false, R::kInvalidated}, {A::kWriteBack, S::kZappedWriting}},
    {{S::kDirty, true, R::kInvalidated}, {A::kMove, S::kZappedDirty}},
    {{S::kWriting, false, R::kInvalidated}, {A::kMove, S::kZappedWriting}},
    {{S::kWriting, true, R::kInvalidated}, {A::kMove, S::kZappedWriting}},
    {{S::kZappedDirty, false, R::kInvalidated}, {A::kKeep, S::kZappedDirty}},
    {{S::kZappedDirty, true, R::kInvalidated}, {A::kKeep, S::kZappedDirty}},
    {{S::kZappedWriting, false, R::kInvalidated}, {A::kKeep, S::kZappedWriting}},
    {{S::kZappedWriting, true, R::kInvalidated}, {A::kKeep, S::kZappedWriting}},

    {{S::kAbsent, false, R::kEnded}, {A::kKeep, S::kAbsent}},
    {{S::kAbsent, true, R::kEnded}, {A::kKeep, S::kAbsent}},
    {{S::kFetching, false, R::kEnded}, {A::kMove, S::kStale}},
    {{S::kFetching, true, R::kEnded}, {A::kMove, S::kStale}},
    {{S::kStale, false, R::kEnded}, {A::kKeep, S::kStale}},
    {{S::kStale, true, R::kEnded}, {A::kKeep, S::kStale}},
    {{S::kClean, false, R::kEnded}, {A::kMove, S::kAbsent}},
    {{S::kClean, true, R::kEnded}, {A::kMove, S::kAbsent}},
    {{S::kDirty, false, R::kEnded}, {A::kLose, S::kAbsent}},
    {{S::kDirty, true, R::kEnded}, {A::kLose, S::kZappedWriting}},
    {{S::kWriting, false, R::kEnded}, {A::kMove, S::kZappedWriting}},
    {{S::kWriting, true, R::kEnded}, {A::kMove, S::kZappedWriting}},
    {{S::kZappedDirty, false, R::kEnded}, {A::kLose, S::kZappedWriting}},
    {{S::kZappedDirty, true, R::kEnded}, {A::kLose, S::kZappedWriting}},
    {{S::kZappedWriting, false, R::kEnded}, {A::kKeep, S::kZappedWriting}},
    {{S::kZappedWriting, true, R::kEnded}, {A::kKeep, S::kZappedWriting}},
};

template <class Each>
void for_each_case(Each each) {
  for (int s = 0; s < kPageStates; ++s) {
    for (const bool in_flight : {false, true}) {
      for (const R reason : {R::kInvalidated, R::kEnded}) {
        each(static_cast<S>(s), in_flight, reason);
      }
    }
  }
}

}  // namespace

TEST_SUITE("drop_decision") {
  TEST_CASE("each_state_is_dropped_as_the_table_says") {
    CHECK(kTable.size() == size_t{kPageStates} * 4);
    for_each_case([](S state, bool in_flight, R reason) {
      CAPTURE(page_state_name(state));
      CAPTURE(in_flight);
      CAPTURE(static_cast<int>(reason));
      CHECK(decide_drop(state, in_flight, reason) == kTable.at({state, in_flight, reason}));
    });
  }

  TEST_CASE("a_dropped_page_is_in_no_view_and_moves_as_pages_may") {
    for_each_case([](S state, bool in_flight, R reason) {
      CAPTURE(page_state_name(state));
      const DropDecision drop = decide_drop(state, in_flight, reason);
      CHECK_FALSE(may_be_mapped(drop.to));
      CHECK((drop.to == state || legal_move(state, drop.to)));
      CHECK((drop.action == A::kKeep) == (drop.to == state));
      if (drop.action == A::kWriteBack)
        CHECK(legal_move(state, S::kAbsent));  // nothing has changed
    });
  }

  // Pages with a twin are dirty ones, in a view or not: nothing else has stores to lose or to send,
  // and none of them is dropped without a word.
  TEST_CASE("only_pages_with_a_twin_are_sent_or_lost") {
    for_each_case([](S state, bool in_flight, R reason) {
      CAPTURE(page_state_name(state));
      const A action = decide_drop(state, in_flight, reason).action;
      const bool has_twin = state == S::kDirty || state == S::kZappedDirty;
      if (action == A::kWriteBack || action == A::kLose) CHECK(has_twin);
      if (has_twin && reason == R::kEnded) CHECK(action == A::kLose);
    });
  }
}

}  // namespace cmi::test::drop_decision_test
