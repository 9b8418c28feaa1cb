// Faults of importers, and on the way from them. In the process of one injection.
#pragma once

#include "reliability/faults.hpp"

namespace cmi::reliability {

Seen importer_dies_unflushed();
Seen importer_ends();
Seen importer_exits();
Seen importer_unheard();
Seen importer_lies();
Seen importer_without_descriptors();
Seen link_not_rebuilt();
Seen neighbour_that_imported_killed();
Seen small_tmpfs_full();

}  // namespace cmi::reliability
