/*
 * failover_standby DIR: follows the primary's ledger by plain loads into a ledger of its own. When
 * the primary is lost, that is the ledger from then on.
 */
#define _DEFAULT_SOURCE /* usleep, sigjmp_buf */
#include <stdio.h>
#include <unistd.h>

#include "failover.h"

const char* program = "failover_standby";

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: failover_standby DIR\n");
    return 2;
  }
  ctxt = cmi_ini(10, NULL);
  must(ctxt != NULL, "cmi_ini");
  volatile struct ledger* own = offer(argv[1], "standby");
  catch_losses();
  volatile uint64_t copied = 0; /* set between sigsetjmp and siglongjmp */
  if (sigsetjmp(on_loss, 1) == 0) {
    volatile struct ledger* followed = find(argv[1], "primary").ledger;
    followed->followed = 1;
    must(cmi_wmb() == 0, "cmi_wmb");
    for (int tries = 0; tries < 15000; tries++) {
      for (const uint64_t filled = followed->filled; copied < filled && copied < ENTRIES;) {
        own->entry[copied] = followed->entry[copied];
        copied = copied + 1;
      }
      usleep(1000); /* the primary's barriers make the cached page go: no call is needed to look */
    }
    must(0, "waiting for the primary's end");
  }
  own->filled = copied;
  must(cmi_wmb() == 0, "cmi_wmb");
  own->serving = 1;
  must(cmi_wmb() == 0, "cmi_wmb");
  printf("standby: the primary is lost; it serves with %llu entries\n", (unsigned long long)copied);
  fflush(stdout);

  for (int tries = 0; own->filled < ENTRIES; tries++) {
    must(tries < 15000, "waiting for the client");
    usleep(1000);
  }
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < ENTRIES; i++) wrong += own->entry[i] != entry_value(i);
  printf("standby: %d entries, %llu of them wrong\n", ENTRIES, (unsigned long long)wrong);
  must(CMIFN(ctxt, 10, fini)(ctxt) == 0, "fini");
  return wrong == 0 ? 0 : 1;
}
