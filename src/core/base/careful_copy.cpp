// See careful_copy.hpp. The copy is one instruction that the handler knows by its address; it may
// fault in its middle, with the registers saying how far it came.
#include "core/base/careful_copy.hpp"

extern "C" {
extern const char cmi_careful_copy_begin[] __attribute__((visibility("hidden")));
extern const char cmi_careful_copy_end[] __attribute__((visibility("hidden")));
}

namespace cmi {

// Once in the program, because of the names in it.
[[gnu::noinline]] size_t careful_copy(void* to, const void* from, size_t n) {
  asm volatile(
      ".globl cmi_careful_copy_begin\n"
      ".hidden cmi_careful_copy_begin\n"
      ".globl cmi_careful_copy_end\n"
      ".hidden cmi_careful_copy_end\n"
      "cmi_careful_copy_begin:\n\t"
      "rep movsb\n"
      "cmi_careful_copy_end:\n\t"
      : "+D"(to), "+S"(from), "+c"(n)
      :
      : "memory");
  return n;
}

[[gnu::hot]] bool end_careful_copy(ucontext_t* uc) {
  auto& at = uc->uc_mcontext.gregs[REG_RIP];
  if (at != reinterpret_cast<greg_t>(&cmi_careful_copy_begin[0])) return false;
  at = reinterpret_cast<greg_t>(&cmi_careful_copy_end[0]);
  const bool writing = (uc->uc_mcontext.gregs[REG_ERR] & 2) != 0;
  if (writing) g_incomplete_writes.fetch_add(1, std::memory_order_seq_cst);
  return true;
}

}  // namespace cmi
