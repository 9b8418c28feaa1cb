/*
 * What the programs of this folder share. Each shows one thing that real programs ran into, against
 * an installed library and with nothing but its public headers: a home process, an importer, and
 * what must be so. A program ends with 0, with 77 where this machine cannot show it, or with 1 and
 * the expectation that failed. tools/check/cases.sh builds them, with _GNU_SOURCE, and runs them.
 */
#ifndef CASE_H
#define CASE_H
#include <cmi.h>
#include <cmi/ofi/cmi_impl.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096
#define SKIPPED 77
#define CALL(entry) CMIFN(ctxt, 11, entry)

/* Ends the process with 1 unless `ok`, and says what was expected. */
#define EXPECT(ok) expect((ok) != 0, #ok, __FILE__, __LINE__)
void expect(int ok, const char* what, const char* file, int line);
/* Ends the process as one that cannot show its case here. */
void skip(const char* why);

/* Whether homes on this machine may have their pages mapped (CMI_LOCAL). */
int may_map(void);

extern cmi_ctxt* ctxt; /* of this process, once it has begun */

/* cmi_ini on a node of this name. */
void begin(const char* node);

/* A home in a process of its own: `pages` pages, each with its number in its first word, offered
 * under its name in the folder CASE_FOLDER. `commands` is called in it for each letter that
 * command() sends, and answers; NULL: there are none. It ends with finish_home(). */
struct home {
  pid_t pid;
  int socket;
  const char* name;
};
typedef long (*answer)(cmi_seg seg, char* view, char letter);
struct home start_home(const char* name, int pages, int flags, answer commands);
long command(struct home* home, char letter);
void stop_home(const struct home* home); /* until SIGCONT; it has stopped on return */
void finish_home(struct home* home);

/* Imports what that home offers, with access for this thread. */
cmi_seg import(const struct home* home);
char* attach(cmi_seg seg);

/* One word, or the cause of the exception that the access raised (CMI_ERROR_*), as a positive
 * number; 0: none. -1: a fault that is none of the library's. */
int load(const char* at, uint64_t* word);
int store(char* at, uint64_t word);

/* A network of this program's own, the loopback alone; skips the case where that cannot be. */
void take_own_network(void);
int set_network(int up); /* of a network of its own */

long now_ms(void);
void pause_ms(int ms);
/* Runs `body` in a child of its own: its status as waitpid() gives it. */
int in_child(void (*body)(void* argument), void* argument);

#endif
