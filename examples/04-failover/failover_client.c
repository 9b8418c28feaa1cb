/*
 * failover_client DIR: fills the ledger entry by entry, first the primary's, once the standby
 * follows that. An access to the lost primary raises an exception; the event that follows says
 * which segments went with it. The client then imports the standby's and goes on where that one
 * stands.
 */
#define _DEFAULT_SOURCE /* usleep, sigjmp_buf */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "failover.h"

const char* program = "failover_client";

/* Each entry is at home before the number that says so. */
static void fill(volatile struct ledger* ledger, uint64_t from) {
  for (uint64_t i = from; i < ENTRIES; i++) {
    ledger->entry[i] = entry_value(i);
    if (cmi_wmb() != 0) continue; /* lost with its home: the next access says so */
    ledger->filled = i + 1;
    (void)cmi_wmb();
    usleep(500); /* something to do between two entries */
  }
}

/* Waits until the library says that the home of this segment is down. */
static void await_home_down(cmi_seg seg) {
  struct pollfd waiting = {.fd = cmi_ofi_evt_fd(ctxt), .events = POLLIN, .revents = 0};
  for (int known = 0; !known;) {
    must(poll(&waiting, 1, 15000) > 0, "waiting for an event");
    cmi_event* event = CMIFN(ctxt, 10, evt_get)(ctxt);
    if (event == NULL) continue;
    if (event->type == CMI_EVENT_STORE_FAILURE) {
      printf("client: stores to %u places did not arrive\n",
             (unsigned)event->info.serr.einfo_naddrs);
    }
    if (event->type == CMI_EVENT_HCTXT_DOWN) {
      for (uint32_t i = 0; i < event->info.down.einfo_nsegs; i++) {
        known = known || event->info.down.einfo_segs[i] == seg;
      }
    }
    CMIFN(ctxt, 10, evt_ret)(event, CMI_EVENT_RET_DONE);
  }
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: failover_client DIR\n");
    return 2;
  }
  ctxt = cmi_ini(10, NULL);
  must(ctxt != NULL, "cmi_ini");
  catch_losses();
  static struct found primary; /* in memory, which the jump does not take back */
  primary = find(argv[1], "primary");
  for (int tries = 0; primary.ledger->followed == 0; tries++) {
    must(tries < 15000, "waiting for the standby to follow the primary");
    usleep(1000); /* nobody could import from a primary that is dead already */
  }
  const int cause = sigsetjmp(on_loss, 1);
  if (cause == 0) {
    fill(primary.ledger, 0);
    must(0, "outliving the primary");
  }
  must(cause == CMI_ERROR_SINVAL, "losing the primary's segment and nothing else");
  await_home_down(primary.seg);
  printf("client: the primary is down, its segment %d with it\n", (int)primary.seg);
  must(CMIFN(ctxt, 10, seg_dt)(ctxt, primary.seg, (void*)primary.ledger) == 0, "seg_dt");

  struct found standby = find(argv[1], "standby");
  must(sigsetjmp(on_loss, 1) == 0, "working with the standby");
  for (int tries = 0; standby.ledger->serving == 0; tries++) {
    must(tries < 15000, "waiting for the standby");
    usleep(1000);
  }
  printf("client: goes on with the standby from entry %llu\n",
         (unsigned long long)standby.ledger->filled);
  fflush(stdout);
  fill(standby.ledger, standby.ledger->filled);
  must(CMIFN(ctxt, 10, fini)(ctxt) == 0, "fini");
  return 0;
}
