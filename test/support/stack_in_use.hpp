// AddressSanitizer takes a jump to another stack for the end of the frames in between, unless it is
// told of both stacks. In other builds nothing is done.
#pragma once

#include <cstddef>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif

namespace cmi::test {

struct StackInUse {
  const void* bottom = nullptr;
  size_t size = 0;
  void* frames = nullptr;  // the sanitizer's, while another stack is used
};

// Memory that is to be a stack: what an earlier one there was told to be is forgotten.
inline void fresh_stack([[maybe_unused]] const StackInUse& stack) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(stack.bottom, stack.size);
#endif
}

// The last thing on a stack before it is left for another one.
inline void leave_stack([[maybe_unused]] StackInUse* from, [[maybe_unused]] const StackInUse& to) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&from->frames, to.bottom, to.size);
#endif
}

// The first thing on it; `from`: where the one that was left is noted.
inline void take_stack([[maybe_unused]] StackInUse* now, [[maybe_unused]] StackInUse* from) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(now->frames, &from->bottom, &from->size);
#endif
}

// What a stack that was left for good refers to is not lost.
inline void keep_stack([[maybe_unused]] const StackInUse& left) {
#ifdef __SANITIZE_ADDRESS__
  __lsan_register_root_region(left.bottom, left.size);
#endif
}

// After a jump out of deeper frames of a stack that it was not told of: they are no more.
inline void forget_deeper_frames([[maybe_unused]] std::byte* of_this_frame) {
#ifdef __SANITIZE_ADDRESS__
  constexpr size_t kDeepest = 512 * 1024;
  __asan_unpoison_memory_region(of_this_frame - kDeepest, kDeepest);
#endif
}

}  // namespace cmi::test
