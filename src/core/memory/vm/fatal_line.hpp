// The last line of a process that dies of an exception which no handler takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/memory/vm/exception.hpp"

namespace cmi::memory {

// Bytes that one line takes at most, its end of line included.
inline constexpr size_t kFatalLineSize = 320;

// The line, without a NUL, in `out` of kFatalLineSize bytes; its length. Async-signal-safe.
size_t format_fatal_line(Exception e, const void* addr, int32_t segment, char* out);

// Whether write_fatal_line() writes: CMI_FATAL_LINE.
void enable_fatal_line(bool on);

// Writes the line to standard error, the first time that a process calls it. Async-signal-safe.
void write_fatal_line(Exception e, const void* addr, int32_t segment);

}  // namespace cmi::memory
