/* mlock and MADV_POPULATE_* bring in no page of an import where threads take no faults: ENOMEM and
 * EFAULT, and nothing else happens. A page that has been loaded is there for them as well. */
#include "case.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

static int lock(char* page) { return mlock(page, PAGE) == 0 ? 0 : errno; }
static int populate(char* page, int how) { return madvise(page, PAGE, how) == 0 ? 0 : errno; }

int main(void) {
  struct home home = start_home("home", 2, 0, NULL);
  uint64_t word = 0;
  char* view;
  setenv("CMI_FAULT", "signal", 1);
  begin("peer");
  view = attach(import(&home));
  EXPECT(lock(view + PAGE) == ENOMEM);
  EXPECT(populate(view + PAGE, MADV_POPULATE_READ) == EFAULT);
  EXPECT(populate(view + PAGE, MADV_POPULATE_WRITE) == EFAULT);
  EXPECT(load(view + PAGE, &word) == 0 && word == 1);
  EXPECT(populate(view + PAGE, MADV_POPULATE_READ) == 0);
  EXPECT(lock(view + PAGE) == 0);
  EXPECT(store(view + PAGE, 2) == 0 && cmi_wmb() == 0);
  EXPECT(CALL(fini)(ctxt) == 0);
  finish_home(&home);
  return 0;
}
