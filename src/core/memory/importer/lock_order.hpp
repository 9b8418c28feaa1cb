// The order of the importer's locks, outermost first, as home/lock_order.hpp has it for the home:
// each mutex is declared between two levels, so that clang (-Wthread-safety-beta) sees any function
// that takes two of them the wrong way round. The levels are never locked and have no definition.
// What each lock guards: doc/design/locking.md.
//
//   adoption     LocalViews::join_mu, TokenInUse::adopt_mu
//   requests     TokenInUse::mu, RegionClaims::mu
//   reports      Losses::mu_
//   tables       ImportTable::mu_, Links::mu_
//   views        HotPages::order_mu_, LocalViews::mu_, ImportViewList::mu
//   answers      PendingAnswers::mu_; then the locks of pages, which clang does not know
//   write-backs  WriteBacks::mu_, Grant::mu_, KnownBreak::mu_
//   leaves       LossReporter::mu_, and everything that is held for a few instructions only
#pragma once

#include "core/base/lock.hpp"

namespace cmi::memory::lock_order {

extern Mutex after_adoption;
extern Mutex after_requests CMI_ACQUIRED_AFTER(after_adoption);
extern Mutex after_reports CMI_ACQUIRED_AFTER(after_requests);
extern Mutex after_tables CMI_ACQUIRED_AFTER(after_reports);
extern Mutex after_import_views CMI_ACQUIRED_AFTER(after_tables);
extern Mutex after_answers CMI_ACQUIRED_AFTER(after_import_views);
extern Mutex after_write_backs CMI_ACQUIRED_AFTER(after_answers);

}  // namespace cmi::memory::lock_order
