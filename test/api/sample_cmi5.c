/*
 * What the sample of cmi(5) shows, as a program that compiles: a context, a segment of 32 MiB that
 * is locked and attached at an address of one's own choice, its handle for other nodes.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp, setenv */

#include <cmi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const size_t kSegmentSize = (size_t)32 << 20;
static const uintptr_t kWantedAddress = 0x100000000;

static int complain(const char* what) {
  fprintf(stderr, "%s: error %d\n", what, (int)cmi_get_error(NULL));
  return -1;
}

/* A copy of the segment's handle, for the peers; the client frees it. NULL: failed. */
static void* copy_handle(cmi_ctxt* ctxt, cmi_seg seg, size_t* size) {
  size_t length = sizeof *size;
  cmi_rseg* handle;
  void* copy;
  if (CMIFN(ctxt, 10, attr_get)(ctxt, seg, CMI_ATTR_RSEG_SIZE, size, &length) != 0) {
    complain("attr_get");
    return NULL;
  }
  handle = CMIFN(ctxt, 10, seg_exp)(ctxt, seg, 0);
  if (handle == NULL) {
    complain("seg_exp");
    return NULL;
  }
  copy = malloc(*size);
  if (copy != NULL) memcpy(copy, handle, *size);
  if (CMIFN(ctxt, 10, rseg_del)(ctxt, handle) != 0) {
    complain("rseg_del");
    free(copy);
    copy = NULL;
  }
  return copy;
}

/* Everything between seg_at() and seg_dt(). */
static int use(cmi_ctxt* ctxt, cmi_seg seg, char* view) {
  size_t size = 0;
  cmi_rseg* handle = copy_handle(ctxt, seg, &size);
  if (handle == NULL) return -1;
  view[0] = 'a';
  view[kSegmentSize - 1] = 'z';
  /* Here a client sends the handle to its peers. */
  printf("segment %d at %p, a handle of %zu bytes, version %u, vendor 0x%x\n", (int)seg,
         (void*)view, size, (unsigned)handle->base.verno, (unsigned)handle->base.vendor);
  free(handle);
  return 0;
}

static int sample(void) {
  cmi_ctxt* ctxt;
  cmi_seg seg;
  char* view;
  int result = -1;

  ctxt = cmi_ini(CMI_VERNO, NULL);
  if (ctxt == NULL) return complain("cmi_ini");
  seg = CMIFN(ctxt, 10, seg_get)(ctxt, kSegmentSize, CMI_SEG_LOCK);
  if (seg == CMI_SEG_INVALID &&
      (cmi_get_error(ctxt) == CMI_ERR_PERM || cmi_get_error(ctxt) == CMI_ERR_NOTSUPP)) {
    printf("memory cannot be locked, error %d; without that, then\n", (int)cmi_get_error(ctxt));
    seg = CMIFN(ctxt, 10, seg_get)(ctxt, kSegmentSize, 0);
  }
  if (seg == CMI_SEG_INVALID) {
    complain("seg_get");
    goto finish;
  }

  view = CMIFN(ctxt, 10, seg_at)(ctxt, seg, (void*)kWantedAddress, 0);
  if (view == NULL && cmi_get_error(ctxt) == CMI_ERR_NOMEM) {
    /* Something is mapped there, the address sanitizer's own memory for instance. */
    printf("%p is in use; anywhere else, then\n", (void*)kWantedAddress);
    view = CMIFN(ctxt, 10, seg_at)(ctxt, seg, NULL, 0);
  }
  if (view == NULL) {
    complain("seg_at");
    goto finish;
  }
  result = use(ctxt, seg, view);
  if (CMIFN(ctxt, 10, seg_dt)(ctxt, seg, view) != 0) result = complain("seg_dt");

finish: /* fini() marks the segment for deletion */
  if (CMIFN(ctxt, 10, fini)(ctxt) != 0) result = complain("fini");
  return result;
}

int main(void) {
  char folder[] = "/dev/shm/cmi-sample-XXXXXX";
  int result;
  if (mkdtemp(folder) == NULL || setenv("CMI_RUNTIME_DIR", folder, 1) != 0) {
    perror(folder);
    return 1;
  }
  result = sample();
  if (rmdir(folder) != 0) {
    perror(folder);
    result = -1;
  }
  return result == 0 ? 0 : 1;
}
