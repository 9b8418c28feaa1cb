// The faults that are injected, one by one, each in a cluster of its own.
#pragma once

#include <string>
#include <vector>

namespace cmi::reliability {

struct Seen {
  double ms = 0;        // from the fault to what Kind::when says
  std::string what;     // what the client noticed
  std::string skipped;  // why it could not be injected here; else empty
  double also = 0;      // what Kind::also says
};

// What must be kept at most; 0: whatever it is. The worst and the median are looked at where there
// are as many injections as for the table; of few the best has to be within either, so that a busy
// machine fails nothing.
struct Bound {
  double worst = 0, median = 0;
};

struct Kind {
  const char* name;
  const char* fault;   // for the table
  const char* when;    // what the time is of
  const char* lost;    // what is lost
  const char* expect;  // what must be among what is noticed; "": nothing may be
  int together;        // how many injections may run side by side and not disturb each other
  Seen (*inject)();
  const char* also = nullptr;  // when not null, the fault has a second row with this as its `when`
  Bound bound = {}, also_bound = {};  // of ms and of also
};

const std::vector<Kind>& kinds();

}  // namespace cmi::reliability
