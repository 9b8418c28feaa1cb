/*
 * The sample of cmi(5), with its typos mended, and its last line carried out: the handle, and a
 * token, go to a peer on another node, which imports the segment and uses it. Mended: seg_get() no
 * longer comes before cmi_ini(), set_at is seg_at, seg_exp() has its attributes, a semicolon, the
 * ends of the lines printed.
 */
#define _XOPEN_SOURCE 700 /* mkdtemp, setenv */

#include <cmi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CMI_SEG_SIZE (1024 * 1024 * 32)

static const char kQuestion[] = "from the home node";
static const char kAnswer[] = "from its peer";

/* ---- The network: a socket pair ------------------------------------------------------------- */

/* Objects are flat bytes, so that they are sent as they are, with their length. */
static int send_object(int channel, const void* object, size_t size) {
  return write(channel, &size, sizeof size) == (ssize_t)sizeof size &&
                 write(channel, object, size) == (ssize_t)size
             ? 0
             : -1;
}

static void* receive_object(int channel) {
  size_t size = 0, at = 0;
  char* object;
  if (read(channel, &size, sizeof size) != (ssize_t)sizeof size) return NULL;
  object = malloc(size);
  while (object != NULL && at < size) {
    const ssize_t n = read(channel, object + at, size - at);
    if (n <= 0) {
      free(object);
      return NULL;
    }
    at += (size_t)n;
  }
  return object;
}

/* ---- The peer, on a node of its own --------------------------------------------------------- */

static int use_import(cmi_ctxt* ctxt, cmi_rseg* rseg, cmi_token* token) {
  int result = -1;
  cmi_ds ds;
  char* addr;
  const cmi_seg seg = CMIFN(ctxt, 10, seg_imp)(ctxt, rseg);
  if (seg == CMI_SEG_INVALID) {
    fprintf(stderr, "Segment import failed with error %d\n", (int)cmi_get_error(ctxt));
    return -1;
  }
  ds.token.tok = token;
  if (CMIFN(ctxt, 10, seg_ctl)(ctxt, seg, CMI_SEG_TOKEN, &ds) != 0) {
    fprintf(stderr, "Token was refused with error %d\n", (int)cmi_get_error(ctxt));
    return -1;
  }
  addr = CMIFN(ctxt, 10, seg_at)(ctxt, seg, NULL, 0);
  if (addr == NULL || CMIFN(ctxt, 10, cmi_enb)(ctxt, 1) != 0) {
    fprintf(stderr, "Segment attach failed with error %d\n", (int)cmi_get_error(ctxt));
    return -1;
  }
  if (strcmp(addr, kQuestion) == 0) {
    strcpy(addr + CMI_SEG_SIZE - sizeof kAnswer, kAnswer);
    result = CMIFN(ctxt, 10, wmb_fn)(ctxt);
  } else {
    fprintf(stderr, "The peer does not see what was stored at home\n");
  }
  if (CMIFN(ctxt, 10, seg_dt)(ctxt, seg, addr) != 0) result = -1;
  return result;
}

static int peer(int channel) {
  cmi_rseg* rseg = receive_object(channel);
  cmi_token* token = receive_object(channel);
  cmi_ctxt* ctxt = NULL;
  int result = -1;
  if (rseg != NULL && token != NULL && setenv("CMI_NODE", "peer", 1) == 0) {
    ctxt = cmi_ini(CMI_VERNO, NULL);
    if (ctxt == NULL) {
      fprintf(stderr, "Ctxt initialization failed with error %d\n", (int)cmi_get_error(NULL));
    } else {
      result = use_import(ctxt, rseg, token);
      if (CMIFN(ctxt, 10, fini)(ctxt) != 0) result = -1;
    }
  }
  free(rseg);
  free(token);
  return result;
}

/* ---- The sample ----------------------------------------------------------------------------- */

/* Waits until the peer has ended; its exit status. */
static int wait_for(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int cmi_test(int channel, pid_t child) {
  cmi_ctxt* ctxt;
  cmi_seg seg;
  void* ataddr = (void*)(uintptr_t)0x100000000;
  void* addr;
  size_t rsegsz = 0;
  size_t toksz = 0;
  size_t optlen;
  cmi_rseg* rseg;
  cmi_token* token;
  int result = -1;

  /* Initialize CMI library - no callback handlers */
  ctxt = cmi_ini(CMI_VERNO, NULL);
  if (NULL == ctxt) {
    fprintf(stdout, "Ctxt initialization failed with error %d\n", (int)cmi_get_error(NULL));
    return -1;
  }

  /* Allocate CMI segment and lock it */
  seg = CMIFN(ctxt, 10, seg_get)(ctxt, CMI_SEG_SIZE, CMI_SEG_LOCK);
  if (CMI_SEG_INVALID == seg &&
      (cmi_get_error(ctxt) == CMI_ERR_PERM || cmi_get_error(ctxt) == CMI_ERR_NOTSUPP ||
       cmi_get_error(ctxt) == CMI_ERR_NOMEM)) {
    /* The user may lock less than that, or nothing: see ulimit -l. */
    fprintf(stdout, "Memory cannot be locked, error %d\n", (int)cmi_get_error(ctxt));
    seg = CMIFN(ctxt, 10, seg_get)(ctxt, CMI_SEG_SIZE, 0);
  }

  /* Attach segment */
  addr = CMIFN(ctxt, 10, seg_at)(ctxt, seg, ataddr, 0);
  if (NULL == addr && cmi_get_error(ctxt) == CMI_ERR_NOMEM) {
    /* Something is mapped there, the address sanitizer's own memory for instance. */
    fprintf(stdout, "%p is in use\n", ataddr);
    addr = CMIFN(ctxt, 10, seg_at)(ctxt, seg, NULL, 0);
  }
  if (NULL == addr) {
    fprintf(stdout, "Segment attach failed with error %d\n", (int)cmi_get_error(ctxt));
    /* Deallocate/finalize context */
    CMIFN(ctxt, 10, fini)(ctxt);
    return -1;
  }

  /* Get remote segment handle to export - query remote segment attribute
   * and allocate remote segment handle of sufficient size. */
  optlen = sizeof(rsegsz);
  if (0 != CMIFN(ctxt, 10, attr_get)(ctxt, seg, CMI_ATTR_RSEG_SIZE, (void*)&rsegsz, &optlen)) {
    fprintf(stdout, "Attribute query CMI_ATTR_RSEG_SIZE failed %d\n", (int)cmi_get_error(ctxt));
    goto detach;
  }

  /* Obtain remote segment handle (export segment) */
  rseg = CMIFN(ctxt, 10, seg_exp)(ctxt, seg, 0);
  if (NULL == rseg) {
    fprintf(stdout, "Unable to export segment. Error %d\n", (int)cmi_get_error(ctxt));
    goto detach;
  }

  /* Distribute remote segment handle to peers over network, and what lets them in */
  optlen = sizeof(toksz);
  token = CMIFN(ctxt, 10, tok_new)(ctxt, seg, CMI_NADDR_ANY, CMI_ACC_READ | CMI_ACC_WRITE);
  if (NULL == token ||
      0 != CMIFN(ctxt, 10, attr_get)(ctxt, seg, CMI_ATTR_TOKEN_SIZE, (void*)&toksz, &optlen)) {
    fprintf(stdout, "Unable to make a token. Error %d\n", (int)cmi_get_error(ctxt));
    goto detach;
  }
  strcpy(addr, kQuestion);
  if (CMIFN(ctxt, 10, wmb_fn)(ctxt) != 0 || send_object(channel, rseg, rsegsz) != 0 ||
      send_object(channel, token, toksz) != 0 || wait_for(child) != 0) {
    fprintf(stdout, "The peer failed\n");
    goto detach;
  }
  if (strcmp((char*)addr + CMI_SEG_SIZE - sizeof kAnswer, kAnswer) != 0) {
    fprintf(stdout, "What the peer stored is not here\n");
    goto detach;
  }
  fprintf(stdout, "segment %d at %p, a handle of %zu bytes, a token of %zu: the peer says \"%s\"\n",
          (int)seg, addr, rsegsz, toksz, (char*)addr + CMI_SEG_SIZE - sizeof kAnswer);
  result = 0;

detach:
  /* Detach segment */
  if (CMIFN(ctxt, 10, seg_dt)(ctxt, seg, addr) != 0) result = -1;
  /* Deallocate/finalize context */
  if (CMIFN(ctxt, 10, fini)(ctxt) != 0) result = -1;
  return result;
}

int main(void) {
  char folder[] = "/dev/shm/cmi-sample-XXXXXX";
  int pair[2];
  int result;
  pid_t child;
  if (mkdtemp(folder) == NULL || setenv("CMI_RUNTIME_DIR", folder, 1) != 0 ||
      setenv("CMI_NODE", "home", 1) != 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0) {
    perror(folder);
    return 1;
  }
  child = fork(); /* before there is a context: a child of fork() would have none */
  if (child == 0) {
    close(pair[0]);
    return peer(pair[1]) == 0 ? 0 : 1;
  }
  close(pair[1]);
  result = child > 0 ? cmi_test(pair[0], child) : -1;
  close(pair[0]); /* a peer that still waits for objects ends */
  (void)waitpid(child, NULL, 0);
  if (rmdir(folder) != 0) { /* not empty: something was left */
    perror(folder);
    result = -1;
  }
  return result == 0 ? 0 : 1;
}
