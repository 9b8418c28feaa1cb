// Probes for bpftrace, perf and SystemTap, at the events of doc/man/cmi_probes.7: one instruction
// that does nothing, and a note in the library that says where it is. Only where <sys/sdt.h>
// (systemtap-sdt-dev) is there when the library is built, and CMI_USDT is on.
// Any thread, signal handlers too. Arguments are numbers or addresses.
#pragma once

#if !defined(CMI_NO_USDT) && __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define CMI_PROBE2(name, a, b) DTRACE_PROBE2(libcmi, name, a, b)
#define CMI_PROBE3(name, a, b, c) DTRACE_PROBE3(libcmi, name, a, b, c)
#else
#define CMI_PROBE2(name, a, b) static_cast<void>(0)
#define CMI_PROBE3(name, a, b, c) static_cast<void>(0)
#endif
