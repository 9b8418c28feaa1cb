// The SIGBUS handler, and how an exception reaches the client's own SIGSEGV handler.
//
// A fault on a view comes as SIGBUS to the thread that touched it. The handler serves it in that
// thread, or, inside the handler and with SIGSEGV in its mask, queues a SIGSEGV with SEGV_CMI to
// itself and returns: the client's handler runs next, with the PC at the access and no frame of
// ours below it. Nobody's sigaction is intercepted. A SIGBUS that is not ours goes to whoever
// handled it before.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <atomic>

#include "core/emulate/emulate.hpp"
#include "core/memory/page/page.hpp"
#include "core/memory/vm/exception.hpp"
#include "core/memory/vm/view_table.hpp"

namespace cmi::memory {

// cmi_enb of this thread. Initial-exec, because the handler reads it.
extern constinit thread_local bool t_access_enabled;

class FaultTarget {
 public:
  virtual ~FaultTarget() = default;
  virtual std::shared_ptr<const View> view_at(const void* addr) = 0;
  // What a SIGBUS of the calling thread at addr comes to; kNone: tried again; kNotOurs: it is
  // passed on. `broken`: the kernel says that the memory is.
  virtual Exception on_fault(const View& view, const std::byte* addr, bool write, bool broken) = 0;
  // A lease is over by the kernel's clock: takes the pages of its imports out of the views. In the
  // handler, whatever the thread was at: takes no lock, and allocates nothing.
  virtual void on_lease_alarm() = 0;
  // Executes the instruction of the calling thread that touched addr of a write-through view.
  virtual emulate::Stop on_write_through(const View& view, const std::byte* addr,
                                         ucontext_t& uc) = 0;
  // Makes the access possible, with the calling thread's t_access_enabled, or says why not. `seen`:
  // the page while the thread that faulted waited; null: the calling thread itself accesses it.
  virtual Exception try_access(const View& view, const std::byte* addr, bool write,
                               const PageSeen* seen) = 0;
};

// Takes SIGBUS over for `target`, or gives it back (nullptr) if it is still ours to give. In a
// simulation it stays taken: other processes there go on.
void set_fault_target(FaultTarget* target);
extern std::atomic<FaultTarget*> g_fault_target;  // of the process

// The calling thread ends the process, and the library with it. From here on other threads that
// fault, or call the library, have nobody to serve them any more and wait for the end, which they
// have no time to miss; but not for ever, should the end wait for one of them.
void process_ends();
void wait_if_process_ends();  // by another thread

// Raises an exception in the calling thread, outside of a fault: atm_cas and cflush. Returns when
// the client's handler does. Nothing with a destructor may be alive in the callers up to the C
// entry, because the handler may siglongjmp away.
void raise_in_call(Exception e, const void* addr, int32_t segment, const void* pc);

}  // namespace cmi::memory
