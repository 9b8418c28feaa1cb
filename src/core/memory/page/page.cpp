// The table of legal moves.
#include "core/memory/page/page.hpp"

#include <cassert>

namespace cmi::memory {

namespace {
using S = PageState;
constexpr uint8_t bit(S s) { return static_cast<uint8_t>(1u << static_cast<unsigned>(s)); }
template <class... T>
constexpr uint8_t to(T... s) {
  return static_cast<uint8_t>((0 | ... | bit(s)));
}
constexpr uint8_t kMoves[kPageStates] = {
    /* kAbsent        */ to(S::kFetching),
    /* kFetching      */ to(S::kStale, S::kClean, S::kDirty, S::kAbsent),
    /* kStale         */ to(S::kFetching, S::kAbsent),
    /* kClean         */ to(S::kDirty, S::kAbsent),
    /* kDirty         */ to(S::kWriting, S::kClean, S::kZappedDirty, S::kZappedWriting, S::kAbsent),
    /* kWriting       */ to(S::kClean, S::kDirty, S::kZappedWriting, S::kAbsent),
    /* kZappedDirty   */ to(S::kZappedWriting, S::kAbsent),
    /* kZappedWriting */ to(S::kAbsent),
};
}  // namespace

bool legal_move(PageState from, PageState to) {
  return (kMoves[static_cast<unsigned>(from)] & bit(to)) != 0;
}

const char* page_state_name(PageState s) {
  static const char* const kNames[kPageStates] = {
      "absent", "fetching", "stale", "clean", "dirty", "writing", "zapped-dirty", "zapped-writing"};
  return kNames[static_cast<unsigned>(s)];
}

void Page::move(PageState to) {
  assert(legal_move(state, to));
  state = to;
}

}  // namespace cmi::memory
