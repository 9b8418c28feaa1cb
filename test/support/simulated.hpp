// What differs between tests of processes and the same source on simulated nodes. A source with a
// PROCESS_CASE includes doctest itself: on processes nothing else here needs it.
#pragma once

#ifdef CMI_TEST_SIMULATED
#include <doctest/doctest.h>

#include "sim/variables.hpp"

// A case of which there is none on simulated nodes: it needs a process, a kernel or a provider.
#define PROCESS_CASE(name) [[maybe_unused]] static void DOCTEST_ANONYMOUS(cmi_of_processes_)()
// A global variable of which each process, or each thread, has its own.
#define CMI_OF_PROCESS(variable) \
  static const bool DOCTEST_ANONYMOUS(cmi_own_) = (process_variables().add(variable), true)
#define CMI_OF_THREAD(variable) \
  static const bool DOCTEST_ANONYMOUS(cmi_own_) = (thread_variables().add(variable), true)
#else
#define PROCESS_CASE(name) TEST_CASE(name)
#define CMI_OF_PROCESS(variable) static_assert(true)
#define CMI_OF_THREAD(variable) static_assert(true)
#endif
