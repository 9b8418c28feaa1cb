// A copy that gives up where the memory is broken, for code that is not ours: it calls this
// for memcpy, goes on with bytes that were not copied, and gets no error. The code that is
// responsible for it asks here afterwards. Costs what the processor's plainest copy does. Any
// thread whose SIGBUS is not blocked.
#pragma once

#include <ucontext.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cmi {

// How many bytes were not copied; 0 is what it should be.
size_t careful_copy(void* to, const void* from, size_t n);

// In the SIGBUS handler: has a careful copy that was interrupted there end. False: it was none.
bool end_careful_copy(ucontext_t* uc);

// How many copies have not reached all of the memory they were to change. Zero as long as nothing
// is broken: the answer of what relies on them is then right.
inline std::atomic<uint64_t> g_incomplete_writes{0};

}  // namespace cmi
