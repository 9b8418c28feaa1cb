// The process's one context: the only mutable globals of the library, and the lock under which it
// is made and ends. For the files that implement Context.
#pragma once

#include <cmi.h>

#include <atomic>

#include "core/base/lock.hpp"

namespace cmi::context {

class Context;

// Stored while a Lifetime is held, or by the last thread of the process; read by any thread.
namespace process {
extern std::atomic<Context*> context;
extern std::atomic<const cmi_ctxt*> handle;  // what the client may pass as its context
}  // namespace process

// Orders the making and ending of the context. A fork waits until it is over.
class Lifetime {
 public:
  Lifetime();
  ~Lifetime();
  Lifetime(const Lifetime&) = delete;
  Lifetime& operator=(const Lifetime&) = delete;

 private:
  Guard lock_;
};

}  // namespace cmi::context
