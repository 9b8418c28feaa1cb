#include <cmi.h>
#include <stdio.h>

int main(void) {
  cmi_ctxt* ctxt = cmi_ini(10, NULL);
  printf("cmi_ini: %s, error %d\n", ctxt != NULL ? "ok" : "failed", (int)cmi_get_error(ctxt));
  return ctxt != NULL && CMIFN(ctxt, 10, fini)(ctxt) == 0 ? 0 : 1;
}
