/*
 * hello_home DIR: the home node. Makes a segment with a greeting in it, offers it in DIR, waits
 * until the other node has stored an answer into the segment, and prints it. The other half is
 * hello_peer.c; run-hello starts both.
 */
#define _DEFAULT_SOURCE /* usleep */
#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What lies in the segment; both programs agree on it. */
struct page {
  char greeting[64];
  char answer[64];
  uint64_t answered;
};

static cmi_ctxt* ctxt;

static void must(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "hello_home: %s failed: %s\n", what, cmi_ofi_error_text(ctxt));
  exit(1);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: hello_home DIR\n");
    return 2;
  }
  ctxt = cmi_ini(10, NULL);
  must(ctxt != NULL, "cmi_ini");
  cmi_seg seg = CMIFN(ctxt, 10, seg_get)(ctxt, 4096, 0);
  must(seg != CMI_SEG_INVALID, "seg_get");
  struct page* page = CMIFN(ctxt, 10, seg_at)(ctxt, seg, NULL, 0);
  must(page != NULL, "seg_at");
  strcpy(page->greeting, "Hello from the home node");
  must(cmi_wmb() == 0, "cmi_wmb");

  cmi_rseg* handle = CMIFN(ctxt, 10, seg_exp)(ctxt, seg, 0);
  must(handle != NULL, "seg_exp");
  cmi_token* token =
      CMIFN(ctxt, 10, tok_new)(ctxt, seg, CMI_NADDR_ANY, CMI_ACC_READ | CMI_ACC_WRITE);
  must(token != NULL, "tok_new");
  must(cmi_ofi_offer(ctxt, argv[1], "greeting", handle, token) == 0, "cmi_ofi_offer");

  volatile uint64_t* answered = &page->answered;
  for (int tries = 0; *answered == 0 && tries < 1500; tries++) usleep(10000);
  int got = *answered != 0;
  if (got) printf("home: the peer answers \"%.64s\"\n", page->answer);
  if (!got) fprintf(stderr, "hello_home: no answer within 15 seconds\n");

  must(cmi_ofi_offer(ctxt, argv[1], "greeting", NULL, NULL) == 0, "cmi_ofi_offer");
  must(CMIFN(ctxt, 10, tok_del)(ctxt, token) == 0, "tok_del");
  must(CMIFN(ctxt, 10, rseg_del)(ctxt, handle) == 0, "rseg_del");
  must(CMIFN(ctxt, 10, seg_dt)(ctxt, seg, page) == 0, "seg_dt");
  must(CMIFN(ctxt, 10, seg_ctl)(ctxt, seg, CMI_SEG_RM, NULL) == 0, "CMI_SEG_RM");
  must(CMIFN(ctxt, 10, fini)(ctxt) == 0, "fini");
  return got ? 0 : 1;
}
