// The client's SIGSEGV handler and the accesses that it guards.
#include "system/guard.hpp"

#include <ucontext.h>

#include <csetjmp>
#include <csignal>

#include "core/base/schedule.hpp"
#include "support/simulated.hpp"
#include "support/stack_in_use.hpp"

#define CMI_TEST_ACCESS \
  __attribute__((noinline, section("cmi_test_access"), no_sanitize("address", "undefined")))

extern "C" {
extern const char __start_cmi_test_access[];
extern const char __stop_cmi_test_access[];
}

namespace cmi::test {

namespace {

struct Guard {
  bool armed = false;
  Fault fault;
  sigjmp_buf back;
};

thread_local Guard t_guard;
OnFault g_on_fault = nullptr;
CMI_OF_THREAD(t_guard);
CMI_OF_PROCESS(g_on_fault);

void handle(int signal, siginfo_t* info, void* context) {
  Guard& guard = t_guard;
  if (!guard.armed) {  // nobody expects it: die by it, at the second try
    ::signal(signal, SIG_DFL);
    return;
  }
  Fault& fault = guard.fault;
  fault.signal = signal;
  fault.code = info->si_code;
  fault.error = info->si_errno;
  fault.id = info->si_code == SEGV_CMI ? info->si_id : 0;
  fault.address = reinterpret_cast<uint64_t>(info->si_addr);
  fault.pc = info->si_code == SEGV_CMI ? reinterpret_cast<uint64_t>(info->si_pc) : 0;
  const auto& frame = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  fault.context_pc = static_cast<uint64_t>(frame.gregs[REG_RIP]);
#else
  fault.context_pc = frame.pc;
#endif
  ++fault.times;
  if (g_on_fault != nullptr && g_on_fault(fault)) return;
  guard.armed = false;
  siglongjmp(guard.back, 1);
}

CMI_TEST_ACCESS void raw_load64(void* access) {
  auto* pair = static_cast<uint64_t*>(access);
  pair[1] = *reinterpret_cast<volatile uint64_t*>(pair[0]);
}
CMI_TEST_ACCESS void raw_store64(void* access) {
  auto* pair = static_cast<uint64_t*>(access);
  *reinterpret_cast<volatile uint64_t*>(pair[0]) = pair[1];
}
CMI_TEST_ACCESS void raw_load8(void* access) {
  auto* pair = static_cast<uint64_t*>(access);
  pair[1] = *reinterpret_cast<volatile uint8_t*>(pair[0]);
}
CMI_TEST_ACCESS void raw_store8(void* access) {
  auto* pair = static_cast<uint64_t*>(access);
  *reinterpret_cast<volatile uint8_t*>(pair[0]) = static_cast<uint8_t>(pair[1]);
}

Access make(void (*raw)(void*), uint64_t address, uint64_t value) {
  uint64_t pair[2] = {address, value};
  // In a simulation the nodes take turns here as well.
  if (Schedule* s = schedule(); s != nullptr) s->pass("access");
  Access access;
  access.fault = guarded(raw, pair);
  access.value = pair[1];
  return access;
}

}  // namespace

void install_guard() {
  struct sigaction action {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, nullptr);
}

void set_on_fault(OnFault hook) { g_on_fault = hook; }

Fault guarded(void (*body)(void*), void* argument) {
  t_guard.fault = {};
  t_guard.armed = true;
  if (sigsetjmp(t_guard.back, 1) == 0)
    body(argument);
  else
    forget_deeper_frames(static_cast<std::byte*>(__builtin_frame_address(0)));
  t_guard.armed = false;
  return t_guard.fault;
}

CodeRange access_code() {
  return {reinterpret_cast<uint64_t>(__start_cmi_test_access),
          reinterpret_cast<uint64_t>(__stop_cmi_test_access)};
}

Access load64(uint64_t address) { return make(raw_load64, address, 0); }
Access store64(uint64_t address, uint64_t value) { return make(raw_store64, address, value); }
Access load8(uint64_t address) { return make(raw_load8, address, 0); }
Access store8(uint64_t address, uint8_t value) { return make(raw_store8, address, value); }

}  // namespace cmi::test
