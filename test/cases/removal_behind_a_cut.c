/* The network between home and importer is cut, and the home removes its segment: when that call
 * returns 0, the importer cannot read its cached page any more. The network is the loopback of a
 * namespace of the program's own. */
#include "case.h"

static long remove_it(cmi_seg seg, char* view, char letter) {
  (void)view;
  (void)letter;
  return CALL(seg_ctl)(ctxt, seg, CMI_SEG_RM, NULL) == 0 ? 0 : cmi_get_error(ctxt);
}

int main(void) {
  struct home home;
  uint64_t word = 0;
  const char* view;
  long until;
  take_own_network();
  home = start_home("home", 3, 0, remove_it);
  begin("peer");
  view = attach(import(&home));
  EXPECT(load(view + 2 * PAGE, &word) == 0 && word == 2);
  EXPECT(set_network(0));
  if (command(&home, 'r') == 0) EXPECT(load(view + 2 * PAGE, NULL) != 0);
  /* Also where the call has said that it goes on, reading ends with the lease. */
  for (until = now_ms() + 30000; load(view + 2 * PAGE, NULL) == 0; pause_ms(10)) {
    EXPECT(now_ms() < until);
  }
  EXPECT(set_network(1));
  finish_home(&home);
  return 0;
}
