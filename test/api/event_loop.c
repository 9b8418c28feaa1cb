/*
 * The event loop of a C client: asks for a map, waits on the descriptor, takes the event, returns
 * it. Exit status 0: it all went as <cmi.h> says.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp, setenv */

#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPECT(condition)                                         \
  do {                                                            \
    if (!(condition)) {                                           \
      fprintf(stderr, "line %d: not %s\n", __LINE__, #condition); \
      return EXIT_FAILURE;                                        \
    }                                                             \
  } while (0)

static int readable(int fd, int milliseconds) {
  struct pollfd p;
  p.fd = fd;
  p.events = POLLIN;
  p.revents = 0;
  return poll(&p, 1, milliseconds) == 1;
}

int main(void) {
  char folder[] = "/dev/shm/cmi-test-XXXXXX";
  cmi_ctxt* ctxt;
  cmi_ctl_cfg cfg;
  cmi_event* event;
  int fd;

  EXPECT(mkdtemp(folder) != NULL);
  EXPECT(setenv("CMI_RUNTIME_DIR", folder, 1) == 0);
  ctxt = cmi_ini(CMI_VERNO, NULL);
  EXPECT(ctxt != NULL);
  fd = cmi_ofi_evt_fd(ctxt);
  EXPECT(fd >= 0);
  EXPECT(!readable(fd, 0));
  EXPECT(CMIFN(ctxt, 10, evt_get)(ctxt) == NULL);
  EXPECT(cmi_get_error(ctxt) == CMI_ERR_NONE);

  memset(&cfg, 0, sizeof cfg);
  cfg.ctl_cfg_rcfg_tout = 500;
  EXPECT(CMIFN(ctxt, 10, cmi_ctl)(ctxt, CMI_CTL_RECONF_TOUT, &cfg) == 0);
  cfg.ctl_cfg_cmap_reqid = 42;
  EXPECT(CMIFN(ctxt, 10, cmi_ctl)(ctxt, CMI_CTL_NODE_CMAP_GET, &cfg) == 0);
  EXPECT(readable(fd, 20000));
  event = CMIFN(ctxt, 10, evt_get)(ctxt);
  EXPECT(event != NULL);
  EXPECT(event->type == CMI_EVENT_CMAP);
  EXPECT(event->ctxt == ctxt);
  EXPECT(event->info.cmap.einfo_reqid == 42);
  EXPECT(event->info.cmap.einfo_nnodes == 0);
  CMIFN(ctxt, 10, evt_ret)(event, CMI_EVENT_RET_DONE);
  EXPECT(!readable(fd, 0));

  EXPECT(CMIFN(ctxt, 10, fini)(ctxt) == 0);
  EXPECT(rmdir(folder) == 0);
  return EXIT_SUCCESS;
}
