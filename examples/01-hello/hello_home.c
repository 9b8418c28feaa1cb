/*
 * hello_home DIR: the home node. Makes a segment with a greeting in it, leaves the handle and a
 * token as two files in DIR, waits until the other node has stored an answer into the segment, and
 * prints it. The other half is hello_peer.c; run-hello starts both.
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
  fprintf(stderr, "hello_home: %s failed, error %d\n", what, (int)cmi_get_error(ctxt));
  exit(1);
}

/* A file appears under its name only when it is whole. */
static void leave_file(const char* dir, const char* name, const void* bytes, size_t size) {
  char part[4096], path[4096];
  snprintf(part, sizeof part, "%s/%s.part", dir, name);
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE* file = fopen(part, "wb");
  must(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0, "writing a file");
  must(rename(part, path) == 0, "renaming a file");
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
  size_t handle_size = 0, token_size = 0, length = sizeof(size_t);
  must(CMIFN(ctxt, 10, attr_get)(ctxt, seg, CMI_ATTR_RSEG_SIZE, &handle_size, &length) == 0 &&
           CMIFN(ctxt, 10, attr_get)(ctxt, seg, CMI_ATTR_TOKEN_SIZE, &token_size, &length) == 0,
       "attr_get");
  leave_file(argv[1], "handle", handle, handle_size);
  leave_file(argv[1], "token", token, token_size);

  volatile uint64_t* answered = &page->answered;
  for (int tries = 0; *answered == 0 && tries < 1500; tries++) usleep(10000);
  int got = *answered != 0;
  if (got) printf("home: the peer answers \"%.64s\"\n", page->answer);
  if (!got) fprintf(stderr, "hello_home: no answer within 15 seconds\n");

  must(CMIFN(ctxt, 10, tok_del)(ctxt, token) == 0, "tok_del");
  must(CMIFN(ctxt, 10, rseg_del)(ctxt, handle) == 0, "rseg_del");
  must(CMIFN(ctxt, 10, seg_dt)(ctxt, seg, page) == 0, "seg_dt");
  must(CMIFN(ctxt, 10, seg_ctl)(ctxt, seg, CMI_SEG_RM, NULL) == 0, "CMI_SEG_RM");
  must(CMIFN(ctxt, 10, fini)(ctxt) == 0, "fini");
  return got ? 0 : 1;
}
