/*
 * A home and counters on other nodes that each count in a word of their own: 64 bytes apart, which
 * is false sharing, or on pages of their own. run-hot shows with cmiadm hot what that costs.
 *   counters DIR                  the home; ends when there is a file DIR/enough
 *   counters DIR N COUNT STEP     the counter N of two: counts to COUNT in the word at 4096 + N *
 * STEP Whoever counts publishes each step, so that the home could be asked for the count at any
 * time.
 */
#define _DEFAULT_SOURCE /* usleep */
#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { kPage = 4096, kPages = 4, kCounters = 2, kPatience = 3000 /* looks, 10 ms each */ };

static cmi_ctxt* ctxt;

static void must(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "counters: %s failed: %s\n", what, cmi_ofi_error_text(ctxt));
  exit(1);
}

/* Until there is the file. A process that nobody ends does so itself, after half a minute. */
static void await_enough(const char* dir) {
  char path[4096];
  snprintf(path, sizeof path, "%s/enough", dir);
  for (int looks = 0; access(path, F_OK) != 0 && looks < kPatience; looks++) usleep(10000);
}

static void be_home(const char* dir) {
  cmi_seg seg = CMIFN(ctxt, 10, seg_get)(ctxt, kPages * kPage, 0);
  must(seg != CMI_SEG_INVALID, "seg_get");
  void* memory = CMIFN(ctxt, 10, seg_at)(ctxt, seg, NULL, 0);
  must(memory != NULL, "seg_at");
  cmi_rseg* handle = CMIFN(ctxt, 10, seg_exp)(ctxt, seg, 0);
  must(handle != NULL, "seg_exp");
  const uint32_t rights = CMI_ACC_READ | CMI_ACC_WRITE | CMI_ACC_ATOMIC;
  cmi_token* token = CMIFN(ctxt, 10, tok_new)(ctxt, seg, CMI_NADDR_ANY, rights);
  must(token != NULL, "tok_new");
  must(cmi_ofi_offer(ctxt, dir, "counters", handle, token) == 0, "cmi_ofi_offer");
  await_enough(dir);
}

/* Both begin when both have come: the word at the segment's beginning counts them. */
static void begin_together(volatile uint64_t* come) {
  uint64_t seen = *come;
  for (uint64_t found;
       CMIFN(ctxt, 10, atm_cas)(ctxt, (uint64_t*)come, seen, seen + 1, &found) != 0 ||
       found != seen;) {
    seen = found;
  }
  for (int looks = 0; *come < kCounters && looks < kPatience; looks++) usleep(10000);
  must(*come == kCounters, "waiting for the other counter");
}

static void count_at(const char* dir, size_t at, uint64_t count) {
  cmi_seg seg = cmi_ofi_find(ctxt, dir, "counters", 15000);
  must(seg != CMI_SEG_INVALID, "cmi_ofi_find");
  char* memory = CMIFN(ctxt, 10, seg_at)(ctxt, seg, NULL, 0);
  must(memory != NULL, "seg_at");
  must(CMIFN(ctxt, 10, cmi_enb)(ctxt, 1) == 0, "cmi_enb");
  begin_together((volatile uint64_t*)memory);
  volatile uint64_t* word = (volatile uint64_t*)(memory + at);
  while (*word < count) {
    *word += 1;
    must(cmi_wmb() == 0, "cmi_wmb");
  }
  printf("counted to %llu at byte %zu\n", (unsigned long long)*word, at);
  fflush(stdout);
  await_enough(dir);
  must(CMIFN(ctxt, 10, seg_dt)(ctxt, seg, memory) == 0, "seg_dt");
}

int main(int argc, char** argv) {
  if (argc != 2 && argc != 5) {
    fprintf(stderr, "usage: counters DIR [N COUNT STEP]\n");
    return 2;
  }
  const size_t at = argc == 5 ? kPage + strtoul(argv[2], NULL, 10) * strtoul(argv[4], NULL, 10) : 0;
  if (at % sizeof(uint64_t) != 0 || at > kPages * kPage - sizeof(uint64_t)) {
    fprintf(stderr, "counters: there is no such word\n");
    return 2;
  }
  ctxt = cmi_ini(10, NULL);
  must(ctxt != NULL, "cmi_ini");
  if (argc == 2) {
    be_home(argv[1]);
  } else {
    count_at(argv[1], at, strtoul(argv[3], NULL, 10));
  }
  must(CMIFN(ctxt, 10, fini)(ctxt) == 0, "fini");
  return 0;
}
