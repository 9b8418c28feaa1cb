// What a load or a store does that faults on a page of an imported segment: the table that the
// fault service carries out. Pure: no lock, no system call, no network. All snapshots are taken
// under the page's lock, and what is decided of the page is done before the lock is released.
#pragma once

#include "core/memory/page/page.hpp"
#include "core/memory/vm/exception.hpp"

namespace cmi::memory {

enum class FaultAction : uint8_t {
  kOver,        // the store may have been made already: its thread faults again if it was not
  kForbid,      // a store through a view that may only be read
  kRefuse,      // the import may not be used like this: ImportSnapshot::refusal
  kAskBreak,    // the page lies past the break that is known here: the home is asked
  kAwaitLease,  // the home may have declared this context dead: nothing is mapped until it is seen
  kAskInFlux,   // the page was reported in flux: the home is asked whether it still is
  kAwait,       // another thread, or the answer to a request, changes the page
  kFetch,       // this thread fetches the page (rule 2)
  kAskIntent,   // the home is asked for the page's dirty intent, before the store (rule 21)
  kFirstStore,  // the twin is copied, then the page becomes writable (rule 4)
  kMapProtected,  // mapped, and a store will fault
  kMapCompared,   // the same where the kernel cannot do it in one step: stores are found by a twin
  kMapDirty,      // mapped, writable where the view is
};

struct FaultDecision {
  FaultAction action;
  bool asks_intent = false;  // of kFetch: the dirty intent is asked for beside the read
  // Of kAskIntent and kFirstStore: the pages behind this one may be made writable with it.
  bool may_widen = false;
  bool operator==(const FaultDecision&) const = default;
};

// The page, under its lock.
struct PageSnapshot {
  PageState state;
  bool pinned;  // a write-back reads the page itself
  bool intent_held, intent_asked;
};

struct FaultAccess {
  bool store;
  bool over;            // a store, and the page may have been dirty since its thread faulted
  bool view_read_only;  // of the view that the access is made through
};

// The import, as it concerns this page and this access.
struct ImportSnapshot {
  Exception refusal;  // kNone: token, rights and link allow the access
  bool past_break, lease_expired, in_flux;
  bool intents;             // stores need a dirty intent at the home
  bool may_store;           // the token has WRITE
  bool protects_when_maps;  // the kernel maps and write-protects a page in one step (Linux 6.4)
};

namespace fault_table {

// A page that is cached and not dirty.
constexpr FaultDecision of_clean(const PageSnapshot& page, const FaultAccess& access,
                                 const ImportSnapshot& imp) {
  // Where the kernel maps first and protects after, a load lets stores through for a moment.
  if (page.pinned && (access.store || !imp.protects_when_maps)) return {FaultAction::kAwait};
  if (access.store) {
    if (!imp.intents) return {FaultAction::kFirstStore, false, true};
    if (page.intent_held) return {FaultAction::kFirstStore};
    return {FaultAction::kAskIntent, false, true};
  }
  const bool exact = imp.protects_when_maps || access.view_read_only || !imp.may_store;
  return {exact ? FaultAction::kMapProtected : FaultAction::kMapCompared};
}

constexpr FaultDecision of_page(const PageSnapshot& page, const FaultAccess& access,
                                const ImportSnapshot& imp) {
  // One thread asks for a dirty intent; the others wait for its answer.
  const bool unmarked = access.store && imp.intents && !page.intent_held;
  const bool asked = unmarked && page.intent_asked;
  switch (page.state) {
    case PageState::kAbsent:
      return asked ? FaultDecision{FaultAction::kAwait}
                   : FaultDecision{FaultAction::kFetch, unmarked};
    case PageState::kClean:
    case PageState::kWriting:
      return asked ? FaultDecision{FaultAction::kAwait} : of_clean(page, access, imp);
    case PageState::kDirty:
      // Without a dirty intent only where a store got through while the page was being mapped
      // (kMapCompared).
      if (asked) return {FaultAction::kAwait};
      return {unmarked ? FaultAction::kAskIntent : FaultAction::kMapDirty};
    case PageState::kFetching:
    case PageState::kStale:
    case PageState::kZappedDirty:
    case PageState::kZappedWriting:
      break;
  }
  return {FaultAction::kAwait};
}

}  // namespace fault_table

// What forbids the access comes first, in this order: the view, a refusal by what is known here, a
// break, a lease that is over, pages in flux.
constexpr FaultDecision decide_fault(const PageSnapshot& page, const FaultAccess& access,
                                     const ImportSnapshot& imp) {
  if (access.store && access.view_read_only && !imp.past_break) return {FaultAction::kForbid};
  if (access.over) return {FaultAction::kOver};
  if (imp.refusal != Exception::kNone) return {FaultAction::kRefuse};
  if (imp.past_break) return {FaultAction::kAskBreak};
  if (imp.lease_expired) return {FaultAction::kAwaitLease};
  if (imp.in_flux) return {FaultAction::kAskInFlux};
  return fault_table::of_page(page, access, imp);
}

}  // namespace cmi::memory
