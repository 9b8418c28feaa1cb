// What libfabric's stream providers do not see to (net and tcp, libfabric 1.17): when the kernel
// cannot read what is to be sent, because the memory is broken, they drop the rest of that message
// and send the next one in its place, and the peer takes that for the data it asked for. Here such
// a connection is cut instead. And some bytes they copy themselves, and die of it: these copies are
// careful ones here.
#pragma once

namespace cmi::fabric::ofi {

// Has the library that `function` belongs to call our send and sendmsg, which shut the socket down
// when they fail with EFAULT and are else the system's, and our memcpy. Once, before it is used.
// False: it does not call them by a table that can be changed.
bool guard_sends(const void* function);

}  // namespace cmi::fabric::ofi
