// What becomes of a cached page that is taken out of use: the table that notifications carry out.
// Pure: no lock, no system call, no network. The page is locked and in no view any more when it is
// decided (rule 9); what is decided is done before the lock is released.
#pragma once

#include "core/memory/page/page.hpp"

namespace cmi::memory {

enum class DropReason : uint8_t {
  // The home has newer bytes, or the page is in flux: the stores that it holds go home.
  kInvalidated,
  // Token, segment or memory have ended: the stores that it holds and that are not on their way are
  // lost.
  kEnded,
};

enum class DropAction : uint8_t {
  kKeep,       // in no view already; what is under way settles it
  kMove,       // to DropDecision::to
  kWriteBack,  // the changed bytes go home; without any the page becomes kAbsent
  kLose,       // the changed bytes are reported lost, the twin goes, then as kMove
};

struct DropDecision {
  DropAction action;
  PageState to;
  bool operator==(const DropDecision&) const = default;
};

// `in_flight`: a write-back of the page has no answer yet.
constexpr DropDecision decide_drop(PageState state, bool in_flight, DropReason reason) {
  switch (state) {
    case PageState::kFetching:
      return {DropAction::kMove, PageState::kStale};
    case PageState::kClean:
      return {DropAction::kMove, PageState::kAbsent};
    case PageState::kWriting:
      return {DropAction::kMove, PageState::kZappedWriting};
    case PageState::kDirty:
      if (reason == DropReason::kEnded) {
        return {DropAction::kLose, in_flight ? PageState::kZappedWriting : PageState::kAbsent};
      }
      // One write-back of a page at a time (rule 5): the answer to the earlier one sends the rest.
      if (in_flight) return {DropAction::kMove, PageState::kZappedDirty};
      return {DropAction::kWriteBack, PageState::kZappedWriting};
    case PageState::kZappedDirty:
      if (reason == DropReason::kEnded) return {DropAction::kLose, PageState::kZappedWriting};
      break;
    case PageState::kAbsent:
    case PageState::kStale:
    case PageState::kZappedWriting:
      break;
  }
  return {DropAction::kKeep, state};
}

}  // namespace cmi::memory
