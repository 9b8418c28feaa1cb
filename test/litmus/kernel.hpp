// Reads litmus tests of the Linux kernel's memory model (herd7's C, files NAME.litmus) as programs
// whose threads are nodes. The kernel's calls become the library's:
//
//   READ_ONCE, atomic_read, rcu_dereference     a load
//   WRITE_ONCE, atomic_set, rcu_assign_pointer  a store
//   smp_mb, smp_wmb, smp_rmb and their kind     cmi_mb, cmi_wmb, cmi_rmb
//   smp_load_acquire, smp_store_release         a load, cmi_rmb; cmi_wmb, a store
//   cmpxchg                                     atm_cas
//   xchg, atomic_add_return and their kind      a loop of atm_cas
//   spin_lock, spin_unlock                      atm_cas of 0 for 1 until it succeeds, of 1 for 0
//
// Words that are swapped are stored to by swaps as well. What cannot be said so (RCU, loops, more
// variables than a Program has) is left out, with the reason.
#pragma once

#include <stdexcept>
#include <string>

#include "litmus/program.hpp"

namespace cmi::test {

struct KernelTest {
  std::string name;
  std::string result;  // what the file says of `exists`: Never, Sometimes, ...; or nothing
  Program program;
  Predicate exists;
};

// Why a file cannot be played.
struct NotPlayed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws NotPlayed.
KernelTest read_kernel_test(const std::string& text);

}  // namespace cmi::test
