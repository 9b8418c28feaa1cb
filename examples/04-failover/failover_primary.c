/*
 * failover_primary DIR: offers the ledger, and dies without a word (kill -9) when the client has
 * filled a part of it.
 */
#define _DEFAULT_SOURCE /* usleep, sigjmp_buf */
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "failover.h"

const char* program = "failover_primary";

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: failover_primary DIR\n");
    return 2;
  }
  ctxt = cmi_ini(10, NULL);
  must(ctxt != NULL, "cmi_ini");
  volatile struct ledger* ledger = offer(argv[1], "primary");
  for (int tries = 0; ledger->filled < DIES_AT; tries++) {
    must(tries < 30000, "waiting for the client, and that one for the standby");
    usleep(1000);
  }
  printf("primary: killed with %d entries or a few more\n", DIES_AT);
  fflush(stdout);
  kill(getpid(), SIGKILL);
  return 1;
}
