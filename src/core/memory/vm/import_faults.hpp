// What the threads that take faults need of the importing side, which implements it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "core/base/clock.hpp"
#include "core/memory/page/page.hpp"
#include "core/memory/vm/userfault.hpp"
#include "core/memory/vm/view_table.hpp"

namespace cmi::memory {

class ImportFaults {
 public:
  virtual Userfault& userfault() = 0;
  // A fault that can be read is one whose thread waits, but the thread may go on at any time after
  // that. This counter of pages that ceased to be dirty, read before the fault is, tells whether
  // the page is still as it was then.
  virtual uint64_t cleaned() const = 0;
  // The page at addr; none: it may have changed since cleaned() returned `cleaned`.
  virtual std::optional<PageSeen> snapshot(const View& view, const std::byte* addr,
                                           uint64_t cleaned) const = 0;
  // Around the service of another thread's fault: whether that thread has access (cmi_enb). Views
  // are not closed between the two calls, so that nothing is mapped after.
  virtual bool begin_serving(pid_t thread) = 0;
  virtual void end_serving() = 0;
  virtual Nanos reconf_timeout() const = 0;
  // What cannot be served ends in the faulting thread, which gets a SIGBUS at a poisoned page.
  virtual void poison(const View& view, const std::byte* addr) = 0;
  virtual void unpoison(const View& view, const std::byte* addr) = 0;

 protected:
  ~ImportFaults() = default;
};

}  // namespace cmi::memory
