// Accesses that may raise a CMI exception, from the client's side: a SIGSEGV handler installed by
// plain sigaction() that remembers what it was told and jumps back, or returns to retry. Runs in
// the child processes of nodes.hpp, on any of their threads; each thread guards its own accesses.
#pragma once

#include <cmi.h>

#include <cstdint>

namespace cmi::test {

// What the handler was told. cause() is what most tests want to know.
struct Fault {
  static constexpr int kNone = 0;
  static constexpr int kPlain = -1;  // a SIGSEGV that is not a CMI exception

  int32_t signal = 0;  // 0: nothing was raised
  int32_t code = 0;    // si_code
  int32_t error = 0;   // si_errno
  int32_t id = 0;      // si_id
  uint64_t address = 0;
  uint64_t pc = 0;          // si_pc
  uint64_t context_pc = 0;  // where the interrupted code stands, from the signal's context
  uint64_t times = 0;       // how often the handler was called

  int cause() const { return signal == 0 ? kNone : code == SEGV_CMI ? error : kPlain; }
};

// An access and what came of it; value is 0 after a fault.
struct Access {
  uint64_t value = 0;
  Fault fault;
  int cause() const { return fault.cause(); }
};

// Installs the handler; the server of nodes.hpp has done so before the first command.
void install_guard();

// Called in the handler, in the faulting thread. True: return from it, so that the access is made
// again; false: abandon it.
using OnFault = bool (*)(const Fault& fault);
void set_on_fault(OnFault hook);

// Runs body(argument) and comes back when it ends or raises something.
Fault guarded(void (*body)(void*), void* argument);

template <class F>
Fault guarded(F& body) {
  return guarded([](void* f) { (*static_cast<F*>(f))(); }, &body);
}

// The machine code of the four functions below lies between these two addresses.
struct CodeRange {
  uint64_t begin;
  uint64_t end;
  bool holds(uint64_t pc) const { return begin <= pc && pc < end; }
};
CodeRange access_code();

Access load64(uint64_t address);
Access store64(uint64_t address, uint64_t value);
Access load8(uint64_t address);
Access store8(uint64_t address, uint8_t value);

}  // namespace cmi::test
