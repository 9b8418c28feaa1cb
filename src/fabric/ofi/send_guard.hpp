// A fault of libfabric's stream providers (net and tcp, seen with 1.17), and what is done
// about it. When the kernel cannot read what is to be sent, because the memory is broken, they drop
// the rest of that message and send the next one in its place. The peer takes that for the data it
// asked for. The guard cuts such a connection instead. They also copy some bytes themselves, and
// the process dies of it: the guard makes these copies careful ones. For which versions it is on:
// may_patch_calls() in call_table.hpp.
#pragma once

namespace cmi::fabric::ofi {

// Has the library that `function` belongs to call our send and sendmsg, which shut the socket down
// when they fail with EFAULT and are else the system's, and our memcpy. Once, before it is used.
// False: it does not call them by a table that can be changed.
bool guard_sends(const void* function);

}  // namespace cmi::fabric::ofi
