/* seg_imp from a home that was killed, on the same machine: it fails in time, and the trace gives
 * no reason that is not so. */
#include "case.h"

static char* path_of_handle(void) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/handle", getenv("CASE_FOLDER"));
  return path;
}

static long save_handle(cmi_seg seg, char* view, char letter) {
  size_t size = 0, length = sizeof size;
  FILE* file = fopen(path_of_handle(), "wb");
  (void)view;
  (void)letter;
  EXPECT(file != NULL);
  EXPECT(CALL(attr_get)(ctxt, seg, CMI_ATTR_RSEG_SIZE, &size, &length) == 0);
  EXPECT(fwrite(CALL(seg_exp)(ctxt, seg, 0), 1, size, file) == size && fclose(file) == 0);
  return (long)size;
}

static char said[16384];
static void note(void* unused, const char* line) {
  (void)unused;
  if (strlen(said) + strlen(line) + 2 < sizeof said) strcat(strcat(said, line), "\n");
}

int main(void) {
  struct home home = start_home("home", 1, 0, save_handle);
  static unsigned char handle[65536];
  const size_t size = (size_t)command(&home, 'h');
  FILE* file = fopen(path_of_handle(), "rb");
  cmi_cbs callbacks;
  EXPECT(file != NULL && size <= sizeof handle && fread(handle, 1, size, file) == size);
  fclose(file);
  memset(&callbacks, 0, sizeof callbacks);
  callbacks.alert = callbacks.log = note;
  callbacks.trace_facilities = CMI_TRACE_FAC_ALL;
  callbacks.trace_level = CMI_TRACE_LVL_HIGHEST;
  setenv("CMI_NODE", "peer", 1);
  ctxt = cmi_ini(CMI_VERNO, &callbacks);
  EXPECT(ctxt != NULL);
  EXPECT(kill(home.pid, SIGKILL) == 0 && waitpid(home.pid, NULL, 0) == home.pid);
  said[0] = '\0';
  EXPECT(CALL(seg_imp)(ctxt, (cmi_rseg*)handle) == CMI_SEG_INVALID);
  EXPECT(cmi_get_error(ctxt) == CMI_ERR_INVAL);
  EXPECT(strstr(said, "seg_imp") != NULL && strstr(said, "loopback") == NULL);
  EXPECT(CALL(fini)(ctxt) == 0);
  return 0;
}
