// See careful_copy.hpp.
#include "core/base/careful_copy.hpp"

#include "core/base/arch/arch.hpp"

namespace cmi {

size_t careful_copy(void* to, const void* from, size_t n) {
  return arch::copy_until_left(to, from, n);
}

[[gnu::hot]] bool end_careful_copy(ucontext_t* uc) {
  const bool writing = arch::was_store(*uc);
  const arch::Left left = arch::leave_copy(*uc);
  if (left == arch::Left::kEnded && writing) {
    g_incomplete_writes.fetch_add(1, std::memory_order_seq_cst);
  }
  return left != arch::Left::kNoCopy;
}

}  // namespace cmi
