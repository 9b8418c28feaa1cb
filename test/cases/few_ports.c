/* A machine that has hardly a port left for what a process listens at and connects from: cmi_ini
 * says NOMEM and names the ports, a process that is there goes on, and newcomers come in again once
 * there are ports. */
#include "case.h"

static char said[8192];
static void note(void* unused, const char* line) {
  (void)unused;
  if (strlen(said) + strlen(line) + 2 < sizeof said) strcat(strcat(said, line), "\n");
}

static void set_ports(int first, int last) {
  FILE* const file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "w");
  if (file == NULL) skip("the range of ports cannot be set");
  fprintf(file, "%d %d", first, last);
  if (fclose(file) != 0) skip("the range of ports cannot be set");
}

static void come_in_vain(void* unused) {
  cmi_cbs callbacks;
  (void)unused;
  memset(&callbacks, 0, sizeof callbacks);
  callbacks.alert = callbacks.log = note;
  callbacks.trace_facilities = CMI_TRACE_FAC_ALL;
  callbacks.trace_level = CMI_TRACE_LVL_ERROR;
  setenv("CMI_NODE", "late", 1);
  EXPECT(cmi_ini(CMI_VERNO, &callbacks) == NULL && cmi_get_error(NULL) == CMI_ERR_NOMEM);
  EXPECT(strstr(said, "no free ports") != NULL);
}

static void come(void* home) {
  uint64_t word = 0;
  begin("late");
  EXPECT(load(attach(import(home)) + PAGE, &word) == 0 && word == 1);
  EXPECT(CALL(fini)(ctxt) == 0);
}

int main(void) {
  struct home home;
  char* view;
  take_own_network();
  set_ports(50000, 60000);
  home = start_home("home", 2, 0, NULL);
  set_ports(61000, 61002);
  EXPECT(in_child(come_in_vain, NULL) == 0);
  set_ports(50000, 60000);
  EXPECT(in_child(come, &home) == 0);
  begin("peer");
  view = attach(import(&home));
  set_ports(61000, 61000);
  EXPECT(store(view + 8, 3) == 0 && cmi_wmb() == 0);
  EXPECT(CALL(fini)(ctxt) == 0);
  finish_home(&home);
  return 0;
}
