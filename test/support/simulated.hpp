// What differs between tests of processes and the same source on simulated nodes. A source with a
// PROCESS_CASE includes doctest itself: on processes nothing else here needs it.
#pragma once

#ifdef CMI_TEST_SIMULATED
#include <doctest/doctest.h>

#include "sim/variables.hpp"

// A case of which there is none on simulated nodes: it needs a process, a kernel or a provider. A
// template that nobody instantiates: what it calls need not be linked.
#define PROCESS_CASE(name) \
  template <class>         \
  [[maybe_unused]] static void DOCTEST_ANONYMOUS(cmi_of_processes_)()
#define CMI_PROCESS_CASE_OF(fixture, type) \
  template <class>                         \
  struct type : fixture {                  \
    void test();                           \
  };                                       \
  template <class T>                       \
  [[maybe_unused]] void type<T>::test()
#define PROCESS_CASE_FIXTURE(fixture, name) \
  CMI_PROCESS_CASE_OF(fixture, DOCTEST_ANONYMOUS(cmi_of_processes_))
// A global variable of which each process, or each thread, has its own.
#define CMI_OF_PROCESS(variable)                  \
  static const bool DOCTEST_ANONYMOUS(cmi_own_) = \
      (::cmi::test::process_variables().add(variable), true)
#define CMI_OF_THREAD(variable)                   \
  static const bool DOCTEST_ANONYMOUS(cmi_own_) = \
      (::cmi::test::thread_variables().add(variable), true)
#else
#define PROCESS_CASE(name) TEST_CASE(name)
#define PROCESS_CASE_FIXTURE(fixture, name) TEST_CASE_FIXTURE(fixture, name)
#define CMI_OF_PROCESS(variable) static_assert(true)
#define CMI_OF_THREAD(variable) static_assert(true)
#endif
