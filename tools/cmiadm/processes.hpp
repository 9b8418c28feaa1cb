// Which process a number in a registry stands for, and what it is doing: for the reader's eye, and
// for the word "stopped". The number is of the process's own pid namespace, which need not be ours,
// where it may be another process's: so the process must have the registry in its memory.
// One thread.
#pragma once

#include <sys/types.h>

#include <string>

namespace cmi::adm {

struct Seen {
  pid_t pid = 0;        // in our pid namespace; 0: it cannot be seen from here
  char state = 0;       // letter of /proc; 0: not known
  std::string program;  // empty: not known
};
// `registry`: an open descriptor of the registry that names the process. `own_pid`: its number in
// its own namespace, 0 for none.
Seen process_that_maps(int registry, pid_t own_pid);

}  // namespace cmi::adm
