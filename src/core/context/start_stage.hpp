// How far the last start of a context by this thread has come. cmiadm doctor names the stage in
// which a start failed.
#pragma once

namespace cmi::context {

enum class Stage {
  kArguments,
  kEnvironment,
  kMachine,  // its pages
  kNode,     // and events
  kNetwork,  // and what the kernel offers
  kMemory,   // faults, the service thread, and the calling thread's registration
};

extern constinit thread_local Stage t_stage;

}  // namespace cmi::context
