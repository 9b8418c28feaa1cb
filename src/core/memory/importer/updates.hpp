// Pages that an importer subscribes to (protocol rule 25): asked for once they are fetched, and
// kept up to date where they are cached by what comes with the notifications. Any thread; never
// waits.
#pragma once

#include "core/memory/importer/importer_core.hpp"
#include "core/memory/wire/notifications.hpp"

namespace cmi::memory {

// Subscribes to a page that has been fetched. No thread waits for the answer: until the home has
// the subscription, notifications drop the page.
void subscribe(Import& imp, uint32_t index);
// False: the page is to be dropped.
bool update(ImporterCore& core, Import& imp, const InvalidateNotification::Update& u);

}  // namespace cmi::memory
