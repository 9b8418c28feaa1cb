/* An import that is rewritten again and again: a page costs one fault for each time that it is
 * published, not one for each store, and what is written back is what was stored. Passes between
 * two barriers cost nothing: once its pages are writable, an import is memory. */
#include "case.h"

enum { kPages = 512, kPasses = 20, kLine = 64 };

static long sum_of(cmi_seg seg, char* view, char letter) {
  uint64_t sum = 0;
  size_t i;
  (void)seg;
  (void)letter;
  for (i = 0; i < (size_t)kPages * PAGE; i += kLine) sum += *(volatile uint64_t*)(view + i);
  return (long)sum;
}

int main(void) {
  struct home home = start_home("home", kPages, 0, sum_of);
  struct cmi_ofi_stats before, after;
  uint64_t sum = 0, pass, faults;
  const uint64_t stores = (uint64_t)kPasses * kPages * PAGE / kLine;
  char* view;
  size_t i;
  begin("peer");
  view = attach(import(&home));
  memset(&before, 0, sizeof before);
  before.size = sizeof before;
  after = before;
  EXPECT(cmi_ofi_stats(ctxt, &before) == 0);
  for (pass = 1; pass <= kPasses; pass++) {
    sum = 0;
    for (i = 0; i < (size_t)kPages * PAGE; i += kLine) {
      *(volatile uint64_t*)(view + i) = i + pass;
      sum += i + pass;
    }
  }
  EXPECT(cmi_wmb() == 0);
  EXPECT(cmi_ofi_stats(ctxt, &after) == 0);
  EXPECT((uint64_t)command(&home, 's') == sum);
  /* The timer publishes every 10 ms what no barrier does, and a page may fault again then: far
   * fewer than the stores all the same. */
  faults = after.store_faults + after.store_misses - before.store_faults - before.store_misses;
  EXPECT(faults > 0 && faults < stores / 20);
  EXPECT(CALL(fini)(ctxt) == 0);
  finish_home(&home);
  return 0;
}
