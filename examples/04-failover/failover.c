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
  fprintf(stderr, "%s: %s failed, error %d\n", program, what, (int)cmi_get_error(ctxt));
  exit(1);
}

/* A file appears under its name only when it is whole. */
static void leave_file(const char* dir, const char* name, const char* kind, const void* bytes,
                       size_t size) {
  char part[4096], path[4096];
  snprintf(part, sizeof part, "%s/%s.%s.part", dir, name, kind);
  snprintf(path, sizeof path, "%s/%s.%s", dir, name, kind);
  FILE* file = fopen(part, "wb");
  must(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0, "writing a file");
  must(rename(part, path) == 0, "renaming a file");
}

static void take_file(const char* dir, const char* name, const char* kind, void* bytes,
                      size_t size) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.%s", dir, name, kind);
  FILE* file = fopen(path, "rb");
  for (int tries = 0; file == NULL && tries < 1500; tries++) {
    usleep(10000);
    file = fopen(path, "rb");
  }
  must(file != NULL && fread(bytes, 1, size, file) > 0 && feof(file), "reading a file");
  fclose(file);
}

void leave_sign(const char* dir, const char* name) { leave_file(dir, name, "sign", "", 1); }

void await_sign(const char* dir, const char* name) {
  char sign[2];
  take_file(dir, name, "sign", sign, sizeof sign);
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
  size_t handle_size = 0, token_size = 0, length = sizeof(size_t);
  must(CMIFN(ctxt, 10, attr_get)(ctxt, seg, CMI_ATTR_RSEG_SIZE, &handle_size, &length) == 0 &&
           CMIFN(ctxt, 10, attr_get)(ctxt, seg, CMI_ATTR_TOKEN_SIZE, &token_size, &length) == 0,
       "attr_get");
  leave_file(dir, name, "token", token, token_size);
  leave_file(dir, name, "handle", handle, handle_size);
  return ledger;
}

struct found find(const char* dir, const char* name) {
  static union {
    char bytes[8192];
    cmi_rseg handle;
    cmi_token token;
  } handle, token;
  take_file(dir, name, "handle", handle.bytes, sizeof handle.bytes);
  take_file(dir, name, "token", token.bytes, sizeof token.bytes);
  struct found found;
  found.seg = CMIFN(ctxt, 10, seg_imp)(ctxt, &handle.handle);
  must(found.seg != CMI_SEG_INVALID, "seg_imp");
  cmi_ds set;
  set.op.token.tok = &token.token;
  must(CMIFN(ctxt, 10, seg_ctl)(ctxt, found.seg, CMI_SEG_TOKEN, &set) == 0, "CMI_SEG_TOKEN");
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
