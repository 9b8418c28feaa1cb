/* Imports of a segment that is quiesced: none of them can be attached before it is resumed. CMIADM
 * names the program that quiesces. */
#include "case.h"

enum { kTries = 20 };

static long quiesce_or_resume(cmi_seg seg, char* view, char letter) {
  char line[600];
  cmi_ds state;
  const long until = now_ms() + 15000;
  (void)view;
  snprintf(line, sizeof line, "%s --node home --wait 20 %s %d >/dev/null 2>&1 %s", getenv("CMIADM"),
           letter == 'q' ? "quiesce" : "resume", seg, letter == 'q' ? "&" : "");
  EXPECT(system(line) == 0);
  while (letter == 'q' && now_ms() < until) {
    cmi_event* const event = CALL(evt_get)(ctxt);
    if (event != NULL) CALL(evt_ret)(event, CMI_EVENT_RET_DONE);
    EXPECT(CALL(seg_ctl)(ctxt, seg, CMI_SEG_STATUS, &state) == 0);
    if (state.status.st_flags & CMI_SEG_ST_QUIESCED) return 1;
    pause_ms(5);
  }
  return letter == 'r';
}

int main(void) {
  struct home home;
  int try;
  long until;
  if (getenv("CMIADM") == NULL) skip("CMIADM names no cmiadm");
  home = start_home("home", 1, 0, quiesce_or_resume);
  begin("peer");
  EXPECT(command(&home, 'q') == 1);
  for (try = 0; try < kTries; try++) {
    const cmi_seg seg = import(&home);
    EXPECT(CALL(seg_at)(ctxt, seg, NULL, 0) == NULL);
    EXPECT(cmi_get_error(ctxt) == CMI_ERR_RECONFIG);
    EXPECT(CALL(seg_ctl)(ctxt, seg, CMI_SEG_RM, NULL) == 0);
  }
  EXPECT(command(&home, 'r') == 1);
  for (until = now_ms() + 15000; now_ms() < until; pause_ms(5)) {
    const cmi_seg seg = import(&home);
    if (CALL(seg_at)(ctxt, seg, NULL, 0) != NULL) break;
    EXPECT(CALL(seg_ctl)(ctxt, seg, CMI_SEG_RM, NULL) == 0);
  }
  EXPECT(now_ms() < until);
  EXPECT(CALL(fini)(ctxt) == 0);
  finish_home(&home);
  return 0;
}
