// Pages in flux, at an importer (rule 21): dirty intents that are given back, and the lists of
// pages that another importer's death has left behind. Any thread; ask_in_flux() waits for the
// home, and is for application threads.
#pragma once

#include <vector>

#include "core/memory/importer/importer_core.hpp"
#include "core/memory/wire/notifications.hpp"

namespace cmi::memory {

// Notes that the intent of a page is being asked for, under the page's lock. The epoch.
uint8_t ask_intent_of(Import& imp, uint32_t page);
// Nobody waits for it: the next dirty intent of the same page has another epoch.
void give_back_intents(const Import& imp, const std::vector<DirtyIntent>& intents);
// Whether a page that was listed still is, or is broken. kNone: it is not, or the access is to be
// tried again.
Exception ask_in_flux(ImporterCore& core, Import& imp, uint32_t page, Deadline deadline);
// Takes a list. False: it names pages that the segment does not have.
bool take_in_flux(Import& imp, const InFluxNotification& m, std::vector<PageRange>* pages);
// Takes the pages that hold nothing of ours any more from the list: what leaves a listed page does
// not come back. One that is not listed any more has been recovered meanwhile.
void settle_pages(Import& imp, std::vector<PageRange>* pages);

}  // namespace cmi::memory
