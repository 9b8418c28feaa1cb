// The whole table of what an access does that faults: every combination of page, access and import
// is described by exactly one of the rows below, which are written from the rules of
// doc/design/protocol.md, and is decided as that row says.
#include "core/memory/importer/fault_decision.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace cmi::test::fault_decision_test {

using namespace cmi::memory;
using A = FaultAction;
using S = PageState;

namespace {

enum class Is : uint8_t { kAny, kNo, kYes };
constexpr Is kAny = Is::kAny, kNo = Is::kNo, kYes = Is::kYes;
bool fits(Is wanted, bool value) { return wanted == Is::kAny || (wanted == Is::kYes) == value; }

struct Case {
  PageSnapshot page;
  FaultAccess access;
  ImportSnapshot import;
};

struct Row {
  const char* because;
  FaultDecision decision;
  std::vector<S> states;
  Is store = kAny, intents = kAny, held = kAny, asked = kAny, pinned = kAny, exact = kAny;
  Is forbidden = kNo;  // a store through a view that may only be read
};

bool forbidden(const Case& c) { return c.access.store && c.access.view_read_only; }

const std::vector<S> kAbsentOnly{S::kAbsent};
const std::vector<S> kCached{S::kClean, S::kWriting};
const std::vector<S> kDirtyOnly{S::kDirty};
const std::vector<S> kUnderWay{S::kFetching, S::kStale, S::kZappedDirty, S::kZappedWriting};
const std::vector<S> kEach{S::kAbsent,   S::kClean, S::kWriting,     S::kDirty,
                           S::kFetching, S::kStale, S::kZappedDirty, S::kZappedWriting};

// `exact`: a load can map the page so that no store gets through unseen: the kernel protects as it
// maps, or nothing may be stored through the view.
const std::vector<Row> kRows{
    {"the view may only be read", {A::kForbid}, kEach, kYes, kAny, kAny, kAny, kAny, kAny, kYes},

    {"2, 9: somebody else changes it", {A::kAwait}, kUnderWay},

    {"2: a load misses", {A::kFetch}, kAbsentOnly, kNo},
    {"2: a store misses, no intents", {A::kFetch}, kAbsentOnly, kYes, kNo},
    {"21: a store misses, marked", {A::kFetch}, kAbsentOnly, kYes, kYes, kYes},
    {"21: a store misses", {A::kFetch, true}, kAbsentOnly, kYes, kYes, kNo, kNo},
    {"21: another asks for the page", {A::kAwait}, kAbsentOnly, kYes, kYes, kNo, kYes},

    {"4: a first store, no intents",
     {A::kFirstStore, false, true},
     kCached,
     kYes,
     kNo,
     kAny,
     kAny,
     kNo},
    {"21: a first store, marked", {A::kFirstStore}, kCached, kYes, kYes, kYes, kAny, kNo},
    {"21: a first store", {A::kAskIntent, false, true}, kCached, kYes, kYes, kNo, kNo, kNo},
    {"21: another asks", {A::kAwait}, kCached, kYes, kYes, kNo, kYes, kNo},
    {"5: its bytes are being read", {A::kAwait}, kCached, kYes, kAny, kAny, kAny, kYes},
    {"a load, in one step", {A::kMapProtected}, kCached, kNo, kAny, kAny, kAny, kAny, kYes},

    {"a store goes on", {A::kMapDirty}, kDirtyOnly, kYes, kNo},
    {"a store goes on, marked", {A::kMapDirty}, kDirtyOnly, kYes, kYes, kYes},
    {"21: stored to before it was marked", {A::kAskIntent}, kDirtyOnly, kYes, kYes, kNo, kNo},
    {"21: and another asks", {A::kAwait}, kDirtyOnly, kYes, kYes, kNo, kYes},
    {"a load", {A::kMapDirty}, kDirtyOnly, kNo},
};

bool describes(const Row& row, const Case& c) {
  bool state = false;
  for (const S s : row.states) state = state || s == c.page.state;
  return state && fits(row.store, c.access.store) && fits(row.intents, c.import.intents) &&
         fits(row.held, c.page.intent_held) && fits(row.asked, c.page.intent_asked) &&
         fits(row.pinned, c.page.pinned) && fits(row.exact, c.import.protects_when_maps) &&
         fits(row.forbidden, forbidden(c));
}

// What older kernels do with a load of a cached page, which no row above describes.
FaultDecision on_an_older_kernel(const Case& c) {
  if (c.page.pinned) return {A::kAwait};
  const bool nothing_to_store = c.access.view_read_only || !c.import.may_store;
  return {nothing_to_store ? A::kMapProtected : A::kMapCompared};
}

template <class Each>
void for_each_case(Each each) {
  for (int s = 0; s < kPageStates; ++s) {
    for (unsigned bits = 0; bits < 1u << 8; ++bits) {
      const auto bit = [&](unsigned n) { return (bits >> n & 1) != 0; };
      each(Case{{static_cast<S>(s), bit(0), bit(1), bit(2)},
                {bit(3), false, bit(4)},
                {Exception::kNone, false, false, false, bit(5), bit(6), bit(7)}});
    }
  }
}

std::string text(const Case& c) {
  return std::string(page_state_name(c.page.state)) + (c.page.pinned ? " pinned" : "") +
         (c.page.intent_held ? " held" : "") + (c.page.intent_asked ? " asked" : "") +
         (c.access.store ? " store" : " load") + (c.access.view_read_only ? " read-only" : "") +
         (c.import.intents ? " intents" : "") + (c.import.may_store ? " may-store" : "") +
         (c.import.protects_when_maps ? " exact" : "");
}

}  // namespace

TEST_SUITE("fault_decision") {
  TEST_CASE("each_access_to_each_page_is_decided_as_the_one_row_says_that_describes_it") {
    std::vector<int> used(kRows.size(), 0);
    for_each_case([&](const Case& c) {
      CAPTURE(text(c));
      const bool older_load = (c.page.state == S::kClean || c.page.state == S::kWriting) &&
                              !c.access.store && !c.import.protects_when_maps;
      const FaultDecision decided = decide_fault(c.page, c.access, c.import);
      int rows = 0;
      for (size_t i = 0; i < kRows.size(); ++i) {
        if (!describes(kRows[i], c)) continue;
        CAPTURE(kRows[i].because);
        ++rows;
        ++used[i];
        CHECK(decided == kRows[i].decision);
      }
      CHECK(rows == (older_load ? 0 : 1));
      if (older_load) CHECK(decided == on_an_older_kernel(c));
    });
    for (size_t i = 0; i < kRows.size(); ++i) {
      CAPTURE(kRows[i].because);
      CHECK(used[i] > 0);
    }
  }

  // What forbids the access is looked at before the page is, in this order.
  TEST_CASE("what_forbids_an_access_comes_before_the_state_of_the_page") {
    for_each_case([&](Case c) {
      CAPTURE(text(c));
      // A view that may only be read forbids stores whatever else is so, up to the break.
      const auto unless_forbidden = [&c](A action) { return forbidden(c) ? A::kForbid : action; };
      c.import.in_flux = true;
      CHECK(decide_fault(c.page, c.access, c.import).action == unless_forbidden(A::kAskInFlux));
      c.import.lease_expired = true;
      CHECK(decide_fault(c.page, c.access, c.import).action == unless_forbidden(A::kAwaitLease));
      c.import.refusal = Exception::kToken;
      CHECK(decide_fault(c.page, c.access, c.import).action == unless_forbidden(A::kRefuse));
      c.access.over = true;
      CHECK(decide_fault(c.page, c.access, c.import).action == unless_forbidden(A::kOver));
      c.access.over = false;
      c.import.refusal = Exception::kNone;
      c.import.past_break = true;
      CHECK(decide_fault(c.page, c.access, c.import).action == A::kAskBreak);
      for (const Exception e : {Exception::kToken, Exception::kAccess, Exception::kSinval}) {
        c.import.refusal = e;
        CHECK(decide_fault(c.page, c.access, c.import).action == A::kRefuse);
      }
      c.access.over = true;
      CHECK(decide_fault(c.page, c.access, c.import).action == A::kOver);
    });
  }

  TEST_CASE("nothing_is_mapped_or_fetched_beside_the_thread_that_has_the_page_under_way") {
    for_each_case([&](const Case& c) {
      if (c.page.state != S::kFetching && c.page.state != S::kStale &&
          c.page.state != S::kZappedDirty && c.page.state != S::kZappedWriting) {
        return;
      }
      CAPTURE(text(c));
      CHECK(decide_fault(c.page, c.access, c.import) ==
            FaultDecision{forbidden(c) ? A::kForbid : A::kAwait});
    });
  }

  // The decision is made when the program is compiled: it has no side effects.
  static_assert(decide_fault({S::kAbsent, false, false, false}, {true, false, false},
                             {Exception::kNone, false, false, false, true, true, true}) ==
                FaultDecision{A::kFetch, true});
}

}  // namespace cmi::test::fault_decision_test
