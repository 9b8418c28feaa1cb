// For processors and builds without a decoder of instructions: write-through segments are not
// offered.
#include "core/emulate/emulate.hpp"

namespace cmi::emulate {

bool supported() { return false; }

ThreadState thread_state(const ucontext_t& /*uc*/) { return {}; }

Stop step(ucontext_t& /*uc*/, Memory& /*memory*/, Bench& /*bench*/) { return Stop::cannot(0); }

}  // namespace cmi::emulate
