/* What the caller of pan chose, by variables of the environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int chosen_mutation(void) {
  const char* number = getenv("MUTATION");
  return number == NULL ? 0 : atoi(number);
}
