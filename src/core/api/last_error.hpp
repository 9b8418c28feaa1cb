// The last failure of the calling thread in words: the sentence of its trace line, kept without a
// trace. cmi_ofi_error_text() gives it out.
#pragma once

#include <fmt/format.h>

#include <cstddef>

#include "core/base/status.hpp"

namespace cmi::api {

inline constexpr size_t kErrorTextSize = 512;  // bytes, the NUL included

// The calling thread's buffer of that size, made at its first failure and freed at its end: static
// thread-local memory is scarce for a library that is loaded at run time. Null: no memory.
char* error_text_buffer();
// The sentence; never null.
const char* error_text();
// Why a call failed: what was found out, or else what the process lacks, or the status. Never null.
const char* words_of_failure(Status status);

// Replaces the sentence; what does not fit is cut.
template <class... Args>
void set_error_text(fmt::format_string<const Args&...> words, const Args&... args) {
  char* const text = error_text_buffer();
  if (text != nullptr) *fmt::format_to_n(text, kErrorTextSize - 1, words, args...).out = '\0';
}

}  // namespace cmi::api
