// What a thread of a simulated process does to the process it belongs to.
#pragma once

namespace cmi::test {

// The process is killed, or stopped, and the calling thread with it.
void die_here();
void stop_here();

}  // namespace cmi::test
