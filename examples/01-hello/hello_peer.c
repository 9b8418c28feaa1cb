/*
 * hello_peer DIR: another node (another value of CMI_NODE, or another machine). Imports the segment
 * that hello_home.c offers in DIR, attaches it, reads the greeting with plain loads and stores an
 * answer.
 */
#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What lies in the segment; both programs agree on it. */
struct page {
  char greeting[64];
  char answer[64];
  uint64_t answered;
};

static cmi_ctxt* ctxt;

static void must(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "hello_peer: %s failed: %s\n", what, cmi_ofi_error_text(ctxt));
  exit(1);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: hello_peer DIR\n");
    return 2;
  }
  ctxt = cmi_ini(10, NULL);
  must(ctxt != NULL, "cmi_ini");
  cmi_seg seg = cmi_ofi_find(ctxt, argv[1], "greeting", 15000);
  must(seg != CMI_SEG_INVALID, "cmi_ofi_find");
  struct page* page = CMIFN(ctxt, 10, seg_at)(ctxt, seg, NULL, 0);
  must(page != NULL, "seg_at");
  must(CMIFN(ctxt, 10, cmi_enb)(ctxt, 1) == 0, "cmi_enb");

  char greeting[sizeof page->greeting];
  memcpy(greeting, page->greeting, sizeof greeting); /* plain loads; the first fetches the page */
  printf("peer: the home says \"%.64s\"\n", greeting);
  strcpy(page->answer, "Hello from the other node");
  must(cmi_wmb() == 0, "cmi_wmb"); /* the answer is at the home before the word that announces it */
  page->answered = 1;
  must(cmi_wmb() == 0, "cmi_wmb");

  must(CMIFN(ctxt, 10, seg_dt)(ctxt, seg, page) == 0, "seg_dt");
  must(CMIFN(ctxt, 10, fini)(ctxt) == 0, "fini");
  return 0;
}
