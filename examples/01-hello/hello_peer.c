/*
 * hello_peer DIR: another node (another value of CMI_NODE, or another machine). Reads the handle
 * and the token that hello_home.c left in DIR, attaches its segment, reads the greeting with plain
 * loads and stores an answer.
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
  fprintf(stderr, "hello_peer: %s failed, error %d\n", what, (int)cmi_get_error(ctxt));
  exit(1);
}

/* Waits up to 15 seconds for a file and reads it into bytes. */
static void take_file(const char* dir, const char* name, void* bytes, size_t size) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE* file = fopen(path, "rb");
  for (int tries = 0; file == NULL && tries < 1500; tries++) {
    usleep(10000);
    file = fopen(path, "rb");
  }
  must(file != NULL && fread(bytes, 1, size, file) > 0 && feof(file), "reading a file");
  fclose(file);
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: hello_peer DIR\n");
    return 2;
  }
  static union {
    char bytes[8192];
    cmi_rseg handle;
    cmi_token token;
  } handle, token;
  take_file(argv[1], "handle", handle.bytes, sizeof handle.bytes);
  take_file(argv[1], "token", token.bytes, sizeof token.bytes);

  ctxt = cmi_ini(10, NULL);
  must(ctxt != NULL, "cmi_ini");
  cmi_seg seg = CMIFN(ctxt, 10, seg_imp)(ctxt, &handle.handle);
  must(seg != CMI_SEG_INVALID, "seg_imp");
  cmi_ds set;
  set.op.token.tok = &token.token;
  must(CMIFN(ctxt, 10, seg_ctl)(ctxt, seg, CMI_SEG_TOKEN, &set) == 0, "CMI_SEG_TOKEN");
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
