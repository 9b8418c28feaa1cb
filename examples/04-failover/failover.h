/*
 * What the three programs of this example share: the ledger that lies in a segment, and the steps
 * that each of them takes to offer one or to get at one.
 *
 * failover_primary dies in the middle of its work; failover_standby has followed it and takes over;
 * failover_client notices by an exception and by an event, and goes on with the standby.
 */
#pragma once

#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>
#include <setjmp.h>

#define ENTRIES 400
#define DIES_AT 150 /* entries that the primary sees before it is killed */

#define LEDGER_SIZE 4096 /* segments come in whole pages */
struct ledger {
  uint64_t serving;  /* by the standby, in its own: it has taken over */
  uint64_t followed; /* by the standby, in the primary's: from here on the primary may die */
  uint64_t filled;   /* entries that are complete, published after them */
  uint64_t entry[ENTRIES];
};

static inline uint64_t entry_value(uint64_t i) { return i * i + 7; }

extern cmi_ctxt* ctxt;
extern const char* program; /* for messages */

void must(int ok, const char* what);

/* Makes a segment for a ledger and offers it in DIR under this name. */
volatile struct ledger* offer(const char* dir, const char* name);

/* Imports and attaches what is offered there, waiting for it. */
struct found {
  cmi_seg seg;
  volatile struct ledger* ledger;
};
struct found find(const char* dir, const char* name);

/* While `on_loss` is set, an access that cannot be served goes there with its CMI_ERROR_ code. One
 * to a home that is only silent is tried again until it can, or until the home is lost. */
void catch_losses(void);
extern sigjmp_buf on_loss;
