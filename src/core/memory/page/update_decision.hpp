// What an update does to a cached page (rule 25): the table that notifications carry out. Pure: no
// lock, no system call, no network. The page is locked when it is decided, and what is decided is
// done before the lock is released.
#pragma once

#include "core/memory/page/page.hpp"

namespace cmi::memory {

// What the update is to the page's subscription.
enum class UpdateMatch : uint8_t {
  kNext,      // the one that it waits for
  kRepeated,  // a copy of one that it has taken in
  kChanged,   // of its epoch, but this node has changed the page since the last one
  kUnknown,   // there is no such subscription, or an update before this one is missing
};

enum class UpdateAction : uint8_t {
  kApply,        // its words are stored to the page
  kKeep,         // the page has them
  kDrop,         // the page is dropped, as by any invalidation
  kUnsubscribe,  // the same, and the subscription ends: this node stores to the page itself
};

constexpr UpdateAction decide_update(PageState state, UpdateMatch match) {
  switch (state) {
    case PageState::kClean:
      switch (match) {
        case UpdateMatch::kNext:
          return UpdateAction::kApply;
        case UpdateMatch::kRepeated:
          return UpdateAction::kKeep;
        case UpdateMatch::kChanged:
          return UpdateAction::kUnsubscribe;
        case UpdateMatch::kUnknown:
          break;
      }
      return UpdateAction::kDrop;
    case PageState::kDirty:
    case PageState::kWriting:
      return UpdateAction::kUnsubscribe;
    case PageState::kAbsent:
    case PageState::kFetching:
    case PageState::kStale:
    case PageState::kZappedDirty:
    case PageState::kZappedWriting:
      break;
  }
  return UpdateAction::kDrop;
}

}  // namespace cmi::memory
