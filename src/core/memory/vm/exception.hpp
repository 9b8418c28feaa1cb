// What an access raises; the values of CMI_ERROR_*.
#pragma once

namespace cmi::memory {

enum class Exception : int {
  kNotOurs = -1,  // not a fault of this library: for the previous handler of SIGBUS
  kNone = 0,
  kEnable = 1,
  kToken = 2,
  kAccess = 3,
  kSinval = 4,
  kUe = 5,
  kTransient = 6,
  kSegBrk = 7,
  kConsist = 8,
};

// Of one of CMI_ERROR_, as si_errno has it: its name, and a clause that says what it means. Any
// number is taken. Async-signal-safe.
const char* exception_name(int number);
const char* exception_meaning(int number);

}  // namespace cmi::memory
