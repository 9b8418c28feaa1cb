#define _DEFAULT_SOURCE /* usleep, siginfo_t */
#include "failover.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

cmi_ctxt* ctxt;
sigjmp_buf on_loss;

void must(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "%s: %s failed; %s\n", program, what, cmi_ofi_error_text(ctxt));
  exit(1);
}

volatile struct ledger* offer(const char* dir, const char* name) {
  /* Readers of the ledger look at nothing beyond `filled`: what a dead client has not finished does
   * no harm, and need not be recovered. */
  cmi_seg seg = CMIFN(ctxt, 10, seg_get)(ctxt, LEDGER_SIZE, CMI_SEG_CLIENT_CONSIST);
  must(seg != CMI_SEG_INVALID, "seg_get");
  volatile struct ledger* ledger = CMIFN(ctxt, 10, seg_at)(ctxt, seg, NULL, 0);
  must(ledger != NULL, "seg_at");
  cmi_rseg* handle = CMIFN(ctxt, 10, seg_exp)(ctxt, seg, 0);
  must(handle != NULL, "seg_exp");
  cmi_token* token =
      CMIFN(ctxt, 10, tok_new)(ctxt, seg, CMI_NADDR_ANY, CMI_ACC_READ | CMI_ACC_WRITE);
  must(token != NULL, "tok_new");
  must(cmi_ofi_offer(ctxt, dir, name, handle, token) == 0, "cmi_ofi_offer");
  return ledger;
}

struct found find(const char* dir, const char* name) {
  struct found found;
  found.seg = cmi_ofi_find(ctxt, dir, name, 15000);
  must(found.seg != CMI_SEG_INVALID, "cmi_ofi_find");
  found.ledger = CMIFN(ctxt, 10, seg_at)(ctxt, found.seg, NULL, 0);
  must(found.ledger != NULL, "seg_at");
  must(CMIFN(ctxt, 10, cmi_enb)(ctxt, 1) == 0, "cmi_enb");
  return found;
}

static void on_segv(int signal_number, siginfo_t* info, void* context) {
  (void)context;
  if (info->si_code != SEGV_CMI) {
    signal(signal_number, SIG_DFL); /* a plain fault: it happens again and kills us */
    return;
  }
  if (info->si_errno == CMI_ERROR_TRANSIENT) return; /* tries again */
  siglongjmp(on_loss, info->si_errno);
}

void catch_losses(void) {
  struct sigaction action = {0};
  action.sa_sigaction = on_segv;
  action.sa_flags = SA_SIGINFO;
  must(sigaction(SIGSEGV, &action, NULL) == 0, "sigaction");
}
