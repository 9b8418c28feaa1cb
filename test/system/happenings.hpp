// Events of the library as a test sees them: copied in the child that got them, then returned.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "system/calls.hpp"

namespace cmi::test {

// A copy of an event; of lists as much as there is room for, and their true length.
struct Happening {
  int32_t type = 0;  // CMI_EVENT_*; 0: none came
  cmi_error error = CMI_ERR_NONE;
  bool own_context = false;  // it names the context that evt_get() was called with
  cmi_seg seg = 0;
  uint64_t request = 0;
  uint32_t n = 0;
  std::array<cmi_seg, 32> segs{};
  std::array<uint64_t, 256> addresses{};
  std::array<std::array<unsigned char, 64>, 8> peers{};

  std::vector<cmi_seg> segments() const;
  std::vector<uint64_t> lines() const;
  bool names(size_t i, const Flat& address) const;
};

// In the child.
Happening copy_of(const cmi_event* event);

// The next event, if one waits now. It is returned as dealt with.
Happening next_happening(Process& process);
// Waits for one, on the descriptor of cmi_ofi_evt_fd().
Happening await_happening(Process& process, int seconds = 25);
// Types of all events that wait, joined by blanks; they are returned.
std::string types_waiting(Process& process);

}  // namespace cmi::test
