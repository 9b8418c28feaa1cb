/*
 * meet: a process of a job of two or more. Rank 0 offers a segment at pmix:, rank 1 another at its
 * own rank; each finds the other's and reads it by plain loads. Exit status 0: all as the manual
 * says.
 */
#define _DEFAULT_SOURCE /* setenv, usleep */
#include <cmi/ofi/cmi_impl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct page {
  uint64_t word;
  uint64_t seen;
  uint64_t done;
};

static cmi_ctxt* ctxt;

static void must(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "meet: %s; %s\n", what, cmi_ofi_error_text(ctxt));
  exit(1);
}

static volatile struct page* offer(const char* where, cmi_rseg** handle, cmi_token** token) {
  cmi_seg seg = CMIFN(ctxt, 10, seg_get)(ctxt, 4096, 0);
  must(seg != CMI_SEG_INVALID, "seg_get");
  struct page* page = CMIFN(ctxt, 10, seg_at)(ctxt, seg, NULL, 0);
  must(page != NULL, "seg_at");
  *handle = CMIFN(ctxt, 10, seg_exp)(ctxt, seg, 0);
  *token = CMIFN(ctxt, 10, tok_new)(ctxt, seg, CMI_NADDR_ANY, CMI_ACC_READ | CMI_ACC_WRITE);
  must(*handle != NULL && *token != NULL, "seg_exp and tok_new");
  page->word = 4711;
  must(cmi_wmb() == 0, "cmi_wmb");
  must(cmi_ofi_offer(ctxt, where, "page", *handle, *token) == 0, where);
  return page;
}

static void fails(int failed, cmi_error error, const char* says, const char* what) {
  must(failed && cmi_get_error(ctxt) == error && strstr(cmi_ofi_error_text(ctxt), says) != NULL,
       what);
}

static void await_end_of_the_other(void) {
  int ended = 0;
  for (int tries = 0; !ended; tries++) {
    must(tries < 30000, "the other has ended");
    cmi_event* event = CMIFN(ctxt, 10, evt_get)(ctxt);
    if (event == NULL) {
      usleep(1000);
      continue;
    }
    ended = event->type == CMI_EVENT_RCTXT_DOWN;
    CMIFN(ctxt, 10, evt_ret)(event, CMI_EVENT_RET_DONE);
  }
}

int main(void) {
  const char* rank = getenv("PMIX_RANK");
  must(rank != NULL, "PMIX_RANK is set");
  const int number = atoi(rank);
  if (number > 1) return 0;
  must(setenv("CMI_NODE", number == 0 ? "meet-0" : "meet-1", 1) == 0, "setenv");
  ctxt = cmi_ini(10, NULL);
  must(ctxt != NULL, "cmi_ini");
  if (number == 1) {
    fails(cmi_ofi_find(ctxt, "pmix:1", "nothing", 0) == CMI_SEG_INVALID, CMI_ERR_RECONFIG,
          "nobody offers it", "what nobody offers is not found");
  }
  cmi_rseg* handle;
  cmi_token* token;
  volatile struct page* mine = offer(number == 0 ? "pmix:" : "pmix:1", &handle, &token);
  fails(cmi_ofi_offer(ctxt, "pmix:", "page", handle, token) != 0, CMI_ERR_NOTSUPP, "changed",
        "an offer is not replaced");
  fails(cmi_ofi_offer(ctxt, "pmix:", "page", NULL, NULL) != 0, CMI_ERR_NOTSUPP, "stays",
        "an offer is not taken away");
  fails(cmi_ofi_offer(ctxt, "pmix:7", "other", handle, token) != 0, CMI_ERR_INVAL, "rank",
        "nobody offers for another rank");
  cmi_seg seg = cmi_ofi_find(ctxt, number == 0 ? "pmix:1" : "pmix:", "page", 30000);
  must(seg != CMI_SEG_INVALID, "cmi_ofi_find");
  volatile struct page* page = CMIFN(ctxt, 10, seg_at)(ctxt, seg, NULL, 0);
  must(page != NULL && CMIFN(ctxt, 10, cmi_enb)(ctxt, 1) == 0, "seg_at and cmi_enb");
  must(page->word == 4711, "the other's word is as it was stored");
  page->seen = 1;
  must(cmi_wmb() == 0, "cmi_wmb");
  for (int tries = 0; mine->seen == 0; tries++) {
    must(tries < 30000, "the other has seen mine");
    usleep(1000);
  }
  /* A segment ends with its context. Rank 0 says when it is done with rank 1's, and ends after
   * rank 1 has: so neither's barrier is cut short. */
  if (number == 0) {
    mine->done = 1;
    must(cmi_wmb() == 0, "cmi_wmb");
    await_end_of_the_other();
  } else {
    for (int tries = 0; page->done == 0; tries++) {
      must(tries < 30000, "the other is done");
      usleep(1000);
    }
  }
  must(CMIFN(ctxt, 10, fini)(ctxt) == 0, "fini");
  printf("rank %d: met\n", number);
  return 0;
}
