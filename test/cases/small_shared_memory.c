/* A runtime folder on 16 MiB of memory, as a container's /dev/shm may be: what CMI_CTL_INFO tells
 * as available can be had, and is no more than there is. */
#include <sched.h>
#include <sys/mount.h>

#include "case.h"

int main(void) {
  cmi_ctl_cfg told;
  char path[4096];
  cmi_seg seg;
  snprintf(path, sizeof path, "%s", getenv("CASE_FOLDER"));
  if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("small", path, "tmpfs", 0, "size=16m,mode=700") != 0) {
    skip("no file system can be mounted");
  }
  setenv("CMI_RUNTIME_DIR", path, 1);
  begin("small");
  EXPECT(CALL(cmi_ctl)(ctxt, CMI_CTL_INFO, &told) == 0);
  EXPECT(told.info.max_mem_avail > 0 && told.info.max_mem_avail <= 16 << 20);
  EXPECT(told.info.max_seg_sz <= 16 << 20);
  seg = CALL(seg_get)(ctxt, told.info.max_mem_avail, 0);
  EXPECT(seg != CMI_SEG_INVALID);
  memset(attach(seg), 1, told.info.max_mem_avail);
  EXPECT(CALL(seg_get)(ctxt, 8 << 20, 0) == CMI_SEG_INVALID);
  EXPECT(cmi_get_error(ctxt) == CMI_ERR_NOMEM);
  EXPECT(CALL(fini)(ctxt) == 0);
  return 0;
}
