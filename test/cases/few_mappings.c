/* An importer and a home that have used up their mappings (vm.max_map_count): loads go on, and so
 * do stores of a process that has stored before; seg_at says NOMEM, and works again once some are
 * free. */
#include "case.h"

enum { kMore = 8 };

static char* held;
static size_t held_bytes;

static long most_mappings(void) {
  long most = 0;
  FILE* const file = fopen("/proc/sys/vm/max_map_count", "r");
  EXPECT(file != NULL && fscanf(file, "%ld", &most) == 1 && fclose(file) == 0);
  return most;
}

/* Every other page with other rights is a mapping of its own. */
static void use_up_mappings(void) {
  const long most = most_mappings();
  long page;
  if (most > 300000) skip("so many mappings take too long to use up");
  held_bytes = (size_t)(most + 2) * PAGE;
  held = mmap(NULL, held_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT(held != MAP_FAILED);
  for (page = 1; page < most; page += 2) {
    if (mprotect(held + page * PAGE, PAGE, PROT_READ) != 0) break;
  }
  EXPECT(page < most && errno == ENOMEM);
}

static void give_back(void) { EXPECT(munmap(held, held_bytes) == 0); }

static long at_home(cmi_seg seg, char* view, char letter) {
  (void)seg;
  if (letter == 'u') use_up_mappings();
  if (letter == 'b') give_back();
  return (long)*(volatile uint64_t*)(view + 8);
}

int main(void) {
  struct home home = start_home("home", 64, 0, at_home);
  uint64_t word = 0;
  cmi_seg seg;
  char *view, *extra[kMore];
  int page, more;
  begin("peer");
  seg = import(&home);
  view = attach(seg);
  EXPECT(store(view + 16, 1) == 0 && cmi_wmb() == 0);
  use_up_mappings();
  EXPECT(command(&home, 'u') == 0);
  /* The kernel may have one or two left that no split of a mapping gets. */
  for (more = 0; more < kMore; more++) {
    extra[more] = CALL(seg_at)(ctxt, seg, NULL, 0);
    if (extra[more] == NULL) break;
  }
  EXPECT(more < kMore && cmi_get_error(ctxt) == CMI_ERR_NOMEM);
  for (page = 0; page < 64; page++) {
    EXPECT(load(view + page * PAGE, &word) == 0 && word == (uint64_t)page);
    EXPECT(store(view + page * PAGE + 8, 7) == 0);
  }
  EXPECT(cmi_wmb() == 0);
  EXPECT(command(&home, 'w') == 7);
  give_back();
  EXPECT(command(&home, 'b') == 7);
  while (more > 0) EXPECT(CALL(seg_dt)(ctxt, seg, extra[--more]) == 0);
  EXPECT(CALL(seg_dt)(ctxt, seg, attach(seg)) == 0);
  EXPECT(CALL(fini)(ctxt) == 0);
  finish_home(&home);
  return 0;
}
