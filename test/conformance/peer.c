/*
 * Peers: this program started again with a CMI_NODE of its own and one end of a socket pair. The
 * statement sends one order at a time, the peer makes the call and sends the order back, with what
 * it gave. A peer ends with its statement: it reads the end of the channel, or its alarm goes off.
 */
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conform.h"

enum { kSeconds = 60, kMostPeers = 64 };

enum order_kind {
  kSegGet = 1,
  kSegImp,
  kSegAt,
  kSegDt,
  kSegCtl,
  kSetToken,
  kSegExp,
  kTokNew,
  kTokDel,
  kRsegDel,
  kCmiCtl,
  kCmiEnb,
  kMb,
  kWmb,
  kRmb,
  kOpenFb,
  kFlushFb,
  kCloseFb,
  kCflush,
  kAtmCas,
  kLoad,
  kStore,
  kStoreWithoutEnd,
  kNaddr,
  kEvent,
  kFailEvent,
  kLoseRights,
  kFini
};

struct order {
  int32_t kind;
  int32_t error;
  uint64_t in[4];
  int64_t result;
  uint64_t value;
  struct fault fault;
  struct flat bytes;
  union {
    cmi_ds ds;
    cmi_ctl_cfg cfg;
    struct told told;
  } what;
};

/* Whole orders only. False: the other side has gone. */
static bool move_order(int channel, struct order* order, bool out) {
  char* at = (char*)order;
  size_t left = sizeof *order;
  while (left > 0) {
    const ssize_t n = out ? write(channel, at, left) : read(channel, at, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    left -= (size_t)n;
  }
  return true;
}

/* ---- The peer ------------------------------------------------------------------------------- */

/* Root becomes somebody else. Others cannot. */
static int64_t lose_rights(void) { return geteuid() == 0 && seteuid(65534) == 0; }

static cmi_fb epoch;

static void obey(struct order* o) {
  void* const at = (void*)(uintptr_t)o->in[1];
  const cmi_seg seg = (cmi_seg)o->in[0];
  void* const object = o->bytes.bytes;
  switch ((enum order_kind)o->kind) {
    case kSegGet:
      o->result = CALL(seg_get, (size_t)o->in[0], (int32_t)o->in[1]);
      break;
    case kSegImp:
      o->result = CALL(seg_imp, (cmi_rseg*)object);
      break;
    case kSegAt:
      o->value = (uint64_t)(uintptr_t)CALL(seg_at, seg, at, (int32_t)o->in[2]);
      break;
    case kSegDt:
      o->result = CALL(seg_dt, seg, at);
      break;
    case kSegCtl:
      o->result = CALL(seg_ctl, seg, (int32_t)o->in[1], o->in[2] != 0 ? &o->what.ds : NULL);
      break;
    case kSetToken:
      o->result = set_token(seg, &o->bytes);
      break;
    case kSegExp: {
      const cmi_rseg* handle = CALL(seg_exp, seg, (int32_t)o->in[1]);
      o->result = handle != NULL ? 0 : -1;
      if (handle != NULL) o->bytes = copy(handle, attribute(seg, CMI_ATTR_RSEG_SIZE));
      break;
    }
    case kTokNew: {
      const cmi_token* token = CALL(tok_new, seg, CMI_NADDR_ANY, (cmi_acc)o->in[1]);
      o->result = token != NULL ? 0 : -1;
      if (token != NULL) o->bytes = copy(token, attribute(seg, CMI_ATTR_TOKEN_SIZE));
      break;
    }
    case kTokDel:
      o->result = CALL(tok_del, (cmi_token*)object);
      break;
    case kRsegDel:
      o->result = CALL(rseg_del, (cmi_rseg*)object);
      break;
    case kCmiCtl:
      o->result = CALL(cmi_ctl, (int32_t)o->in[0], &o->what.cfg);
      break;
    case kCmiEnb:
      o->result = CALL(cmi_enb, (int)o->in[0]);
      break;
    case kMb:
      o->result = CALL0(mb_fn);
      break;
    case kWmb:
      o->result = CALL0(wmb_fn);
      break;
    case kRmb:
      o->result = CALL0(rmb_fn);
      break;
    case kOpenFb:
      epoch = CALL0(open_fb);
      o->result = epoch != NULL ? 0 : -1;
      break;
    case kFlushFb:
      o->result = CALL(flush_fb, epoch);
      break;
    case kCloseFb:
      o->result = CALL(close_fb, epoch);
      break;
    case kCflush: {
      void* line = at;
      o->fault = fault_of_cflush(at);
      if (!o->fault.caught) o->result = CALL(cflush, &line, 1);
      break;
    }
    case kAtmCas:
      o->fault = fault_of_cas(at); /* 0 for 0 */
      if (!o->fault.caught) o->result = CALL(atm_cas, at, o->in[2], o->in[3], &o->value);
      break;
    case kLoad:
      o->fault = fault_of_load(at);
      if (!o->fault.caught) o->value = load_word(at);
      break;
    case kStore:
      o->fault = fault_of_word(at, o->in[2]);
      break;
    case kStoreWithoutEnd:
      break; /* after the answer */
    case kNaddr:
      o->bytes = copy(ctxt->naddr, attribute(0, CMI_ATTR_NODEADDR_SIZE));
      break;
    case kEvent: {
      cmi_event* event = next_event();
      memset(&o->what, 0, sizeof o->what);
      if (event != NULL) {
        o->what.told = told_of(event);
        give_back(event);
      }
      break;
    }
    case kFailEvent: {
      cmi_event* event = next_event();
      if (event != NULL) CMIFN(ctxt, 10, evt_ret)(event, CMI_EVENT_RET_FAILED);
      o->result = event != NULL;
      break;
    }
    case kLoseRights:
      o->result = lose_rights();
      break;
    case kFini:
      o->result = CALL0(fini);
      break;
  }
  o->error = (int32_t)cmi_get_error(ctxt);
}

int serve(int channel) {
  struct order order;
  alarm(kSeconds);
  if (getenv("CONFORM_PLAIN") == NULL) ctxt = cmi_ini(CMI_VERNO, NULL);
  memset(&order, 0, sizeof order);
  order.result = ctxt != NULL ? 0 : -1;
  order.error = (int32_t)cmi_get_error(NULL);
  if (!move_order(channel, &order, true)) return 1;
  while (move_order(channel, &order, false)) {
    obey(&order);
    if (!move_order(channel, &order, true)) return 1;
    if (order.kind == kFini) return order.result == 0 ? 0 : 1;
    if (order.kind == kStoreWithoutEnd) {
      uint64_t value = 1;
      for (;; ++value) store_word((void*)(uintptr_t)order.in[1], value);
    }
  }
  return 1; /* the statement ended without ending us */
}

/* ---- The statement's side ------------------------------------------------------------------- */

struct peer {
  pid_t pid; /* 0: waited for */
  int channel;
  struct order order;
};

static struct peer peers[kMostPeers];
static size_t peer_count;
static bool disorder; /* a peer did not end in good order */

bool peers_ended_in_order(void) { return !disorder; }

int peer_wait(struct peer* peer) {
  int status = -1;
  while (peer->pid > 0 && waitpid(peer->pid, &status, 0) < 0 && errno == EINTR) {
  }
  peer->pid = 0;
  if (status != 0) disorder = true;
  close(peer->channel);
  return status;
}

static struct peer* start(const char* node, bool plain) {
  struct peer* peer = &peers[peer_count];
  int pair[2];
  NEED(peer_count < kMostPeers);
  NEED(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  NEED(fcntl(pair[0], F_SETFD, FD_CLOEXEC) == 0);
  fflush(stdout);
  peer->pid = fork();
  NEED(peer->pid >= 0);
  if (peer->pid == 0) {
    char number[16];
    snprintf(number, sizeof number, "%d", pair[1]);
    if (setenv("CMI_NODE", node, 1) == 0 && (!plain || setenv("CONFORM_PLAIN", "1", 1) == 0)) {
      execl(program_path(), program_path(), "peer", number, (char*)NULL);
    }
    _exit(127);
  }
  ++peer_count;
  close(pair[1]);
  peer->channel = pair[0];
  NEED(move_order(peer->channel, &peer->order, false));
  NEED(plain || peer->order.result == 0);
  return peer;
}

struct peer* peer_start(const char* node) {
  return start(node, false);
}
struct peer* peer_start_plain(const char* node) {
  return start(node, true);
}

pid_t peer_pid(const struct peer* peer) { return peer->pid; }
void peer_signal(struct peer* peer, int number) {
  int status;
  NEED(kill(peer->pid, number) == 0);
  /* Its threads stop one after the other; one that still runs could answer. */
  if (number == SIGSTOP) NEED(waitpid(peer->pid, &status, WUNTRACED) == peer->pid);
}
void peer_kill(struct peer* peer) {
  peer_signal(peer, SIGKILL);
  (void)peer_wait(peer);
}

static struct order* ask(struct peer* peer, enum order_kind kind) {
  peer->order.kind = (int32_t)kind;
  peer->order.result = 0;
  peer->order.value = 0;
  memset(&peer->order.fault, 0, sizeof peer->order.fault);
  NEED(move_order(peer->channel, &peer->order, true));
  NEED(move_order(peer->channel, &peer->order, false));
  return &peer->order;
}

static struct order* ask_with(struct peer* peer, enum order_kind kind, uint64_t a, uint64_t b,
                              uint64_t c, uint64_t d) {
  const uint64_t in[4] = {a, b, c, d};
  memcpy(peer->order.in, in, sizeof in);
  return ask(peer, kind);
}

int peer_end(struct peer* peer) {
  (void)ask(peer, kFini);
  return peer_wait(peer);
}

void end_peers(void) {
  size_t i;
  for (i = 0; i < peer_count; ++i) {
    if (peers[i].pid > 0) EXPECT(peer_end(&peers[i]) == 0);
  }
}

void kill_peers(void) {
  size_t i;
  for (i = 0; i < peer_count; ++i) {
    if (peers[i].pid <= 0) continue;
    kill(peers[i].pid, SIGKILL);
    (void)peer_wait(&peers[i]);
  }
}

cmi_error peer_error(const struct peer* peer) { return (cmi_error)peer->order.error; }
struct fault peer_fault(const struct peer* peer) {
  return peer->order.fault;
}

cmi_seg peer_seg_get(struct peer* peer, size_t size, int32_t flags) {
  return (cmi_seg)ask_with(peer, kSegGet, size, (uint64_t)flags, 0, 0)->result;
}
cmi_seg peer_seg_imp(struct peer* peer, const struct flat* handle) {
  peer->order.bytes = *handle;
  return (cmi_seg)ask(peer, kSegImp)->result;
}
uint64_t peer_seg_at(struct peer* peer, cmi_seg seg, uint64_t addr, int32_t flags) {
  return ask_with(peer, kSegAt, (uint64_t)seg, addr, (uint64_t)flags, 0)->value;
}
int peer_seg_dt(struct peer* peer, cmi_seg seg, uint64_t addr) {
  return (int)ask_with(peer, kSegDt, (uint64_t)seg, addr, 0, 0)->result;
}
int peer_seg_ctl(struct peer* peer, cmi_seg seg, int32_t cmd, cmi_ds* ds) {
  int result;
  if (ds != NULL) peer->order.what.ds = *ds;
  result = (int)ask_with(peer, kSegCtl, (uint64_t)seg, (uint64_t)cmd, ds != NULL, 0)->result;
  if (ds != NULL) *ds = peer->order.what.ds;
  return result;
}
int peer_seg_rm(struct peer* peer, cmi_seg seg) {
  return peer_seg_ctl(peer, seg, CMI_SEG_RM, NULL);
}
int peer_set_token(struct peer* peer, cmi_seg seg, const struct flat* token) {
  peer->order.bytes = *token;
  return (int)ask_with(peer, kSetToken, (uint64_t)seg, 0, 0, 0)->result;
}
int peer_seg_exp(struct peer* peer, cmi_seg seg, struct flat* handle) {
  const int result = (int)ask_with(peer, kSegExp, (uint64_t)seg, 0, 0, 0)->result;
  *handle = peer->order.bytes;
  return result;
}
int peer_tok_new(struct peer* peer, cmi_seg seg, cmi_acc rights, struct flat* token) {
  const int result = (int)ask_with(peer, kTokNew, (uint64_t)seg, rights, 0, 0)->result;
  *token = peer->order.bytes;
  return result;
}
int peer_tok_del(struct peer* peer, const struct flat* token) {
  peer->order.bytes = *token;
  return (int)ask(peer, kTokDel)->result;
}
int peer_rseg_del(struct peer* peer, const struct flat* handle) {
  peer->order.bytes = *handle;
  return (int)ask(peer, kRsegDel)->result;
}
int peer_cmi_ctl(struct peer* peer, int32_t cmd, cmi_ctl_cfg* cfg) {
  int result;
  peer->order.what.cfg = *cfg;
  result = (int)ask_with(peer, kCmiCtl, (uint64_t)cmd, 0, 0, 0)->result;
  *cfg = peer->order.what.cfg;
  return result;
}
int peer_cmi_enb(struct peer* peer, int enable) {
  return (int)ask_with(peer, kCmiEnb, (uint64_t)enable, 0, 0, 0)->result;
}
int peer_mb(struct peer* peer) { return (int)ask(peer, kMb)->result; }
int peer_wmb(struct peer* peer) { return (int)ask(peer, kWmb)->result; }
int peer_rmb(struct peer* peer) { return (int)ask(peer, kRmb)->result; }
int peer_open_fb(struct peer* peer) { return (int)ask(peer, kOpenFb)->result; }
int peer_flush_fb(struct peer* peer) { return (int)ask(peer, kFlushFb)->result; }
int peer_close_fb(struct peer* peer) { return (int)ask(peer, kCloseFb)->result; }
int peer_cflush(struct peer* peer, uint64_t addr) {
  return (int)ask_with(peer, kCflush, 0, addr, 0, 0)->result;
}
int peer_atm_cas(struct peer* peer, uint64_t addr, uint64_t expected, uint64_t wanted,
                 uint64_t* was) {
  const struct order* o = ask_with(peer, kAtmCas, 0, addr, expected, wanted);
  *was = o->value;
  return (int)o->result;
}
uint64_t peer_load(struct peer* peer, uint64_t addr) {
  return ask_with(peer, kLoad, 0, addr, 0, 0)->value;
}
void peer_store(struct peer* peer, uint64_t addr, uint64_t value) {
  (void)ask_with(peer, kStore, 0, addr, value, 0);
}
void peer_store_without_end(struct peer* peer, uint64_t addr) {
  (void)ask_with(peer, kStoreWithoutEnd, 0, addr, 0, 0);
}
struct flat peer_naddr(struct peer* peer) {
  return ask(peer, kNaddr)->bytes;
}
struct told peer_event(struct peer* peer) {
  return ask(peer, kEvent)->what.told;
}
bool peer_fail_event(struct peer* peer) {
  peer->order.kind = kFailEvent;
  NEED(move_order(peer->channel, &peer->order, true));
  return move_order(peer->channel, &peer->order, false) && peer->order.result != 0;
}
bool peer_lose_rights(struct peer* peer) {
  disorder = true; /* it cannot remove its files any more */
  return ask(peer, kLoseRights)->result != 0;
}

struct told told_of(const cmi_event* event) {
  const size_t most = sizeof((struct told*)NULL)->segments / sizeof(cmi_seg);
  struct told told;
  size_t i;
  memset(&told, 0, sizeof told);
  told.type = (int32_t)event->type;
  switch (event->type) {
    case CMI_EVENT_QUIESCE:
    case CMI_EVENT_RESUME:
      told.segment = event->seg.einfo_seg;
      break;
    case CMI_EVENT_RCTXT_DOWN:
    case CMI_EVENT_HCTXT_DOWN:
      told.count = event->down.einfo_nsegs;
      for (i = 0; i < told.count && i < most; ++i) told.segments[i] = event->down.einfo_segs[i];
      break;
    case CMI_EVENT_STORE_FAILURE:
    case CMI_EVENT_HW:
      told.segment = event->serr.einfo_seg;
      told.count = event->serr.einfo_naddrs;
      if (told.count > 0) told.first_address = (uint64_t)(uintptr_t)event->serr.einfo_addr[0];
      break;
    case CMI_EVENT_CMAP:
      told.request = event->cmap.einfo_reqid;
      told.count = event->cmap.einfo_nnodes;
      break;
  }
  return told;
}

struct shared share_flags(cmi_acc rights, int32_t flags) {
  struct shared s;
  s.home = CALL(seg_get, UNITS(4), flags);
  NEED(s.home > 0);
  s.near = attach(s.home);
  s.handle = export_of(s.home);
  s.token = new_token(s.home, rights);
  s.key = copy(s.token, attribute(s.home, CMI_ATTR_TOKEN_SIZE));
  s.peer = peer_start("far");
  s.import = peer_seg_imp(s.peer, &s.handle);
  NEED(s.import > 0);
  NEED(peer_set_token(s.peer, s.import, &s.key) == 0);
  s.far = peer_seg_at(s.peer, s.import, 0, 0);
  NEED(s.far != 0);
  NEED(peer_cmi_enb(s.peer, 1) == 0);
  return s;
}
struct shared share(cmi_acc rights) {
  return share_flags(rights, 0);
}
