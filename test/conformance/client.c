/* The statement's own process as a client: its context, short forms of calls, waiting, heaps. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "conform.h"

cmi_ctxt* ctxt;

void begin_with(cmi_cbs* callbacks) {
  ctxt = cmi_ini(CMI_VERNO, callbacks);
  NEED(ctxt != NULL);
}
void begin(void) { begin_with(NULL); }

void end(void) {
  EXPECT(CALL0(fini) == 0);
  ctxt = NULL;
}

struct cmi_cfg_info limits(void) {
  cmi_ctl_cfg cfg;
  memset(&cfg, 0, sizeof cfg);
  NEED(CALL(cmi_ctl, CMI_CTL_INFO, &cfg) == 0);
  return cfg.info;
}
size_t unit(void) { return limits().prot_units; }

size_t attribute(cmi_seg seg, int32_t name) {
  size_t size = 0, length = sizeof size;
  NEED(CALL(attr_get, seg, name, &size, &length) == 0);
  return size;
}

struct flat copy(const void* object, size_t size) {
  struct flat flat;
  memset(&flat, 0, sizeof flat);
  NEED(object != NULL && size <= sizeof flat.bytes);
  memcpy(flat.bytes, object, size);
  flat.size = size;
  return flat;
}

cmi_seg new_segment(size_t units) {
  const cmi_seg seg = CALL(seg_get, UNITS(units), 0);
  NEED(seg > 0);
  return seg;
}

char* attach(cmi_seg seg) {
  char* view = CALL(seg_at, seg, NULL, 0);
  NEED(view != NULL);
  return view;
}

struct flat export_of(cmi_seg seg) {
  return copy(CALL(seg_exp, seg, 0), attribute(seg, CMI_ATTR_RSEG_SIZE));
}

cmi_token* new_token(cmi_seg seg, cmi_acc rights) {
  cmi_token* token = CALL(tok_new, seg, CMI_NADDR_ANY, rights);
  NEED(token != NULL);
  return token;
}

struct flat token_of(cmi_seg seg, cmi_acc rights) {
  return copy(new_token(seg, rights), attribute(seg, CMI_ATTR_TOKEN_SIZE));
}

cmi_seg import(const struct flat* handle) {
  struct flat bytes = *handle;
  const cmi_seg seg = CALL(seg_imp, (cmi_rseg*)(void*)bytes.bytes);
  NEED(seg > 0);
  return seg;
}

int set_token(cmi_seg seg, const struct flat* token) {
  struct flat bytes = *token;
  cmi_ds ds;
  memset(&ds, 0, sizeof ds);
  ds.token.tok = (cmi_token*)(void*)bytes.bytes;
  return CALL(seg_ctl, seg, CMI_SEG_TOKEN, &ds);
}

int remove_segment(cmi_seg seg) { return CALL(seg_ctl, seg, CMI_SEG_RM, NULL); }

uint32_t status_of(cmi_seg seg) {
  cmi_ds ds;
  memset(&ds, 0, sizeof ds);
  NEED(CALL(seg_ctl, seg, CMI_SEG_STATUS, &ds) == 0);
  return ds.status.st_flags;
}

struct loop loop(void) {
  struct loop l;
  struct flat handle, token;
  l.home = new_segment(4);
  l.near = attach(l.home);
  handle = export_of(l.home);
  token = token_of(l.home, ALL_RIGHTS);
  l.import = import(&handle);
  NEED(set_token(l.import, &token) == 0);
  l.far = attach(l.import);
  NEED(CALL(cmi_enb, 1) == 0);
  return l;
}

bool until(bool (*condition)(void* arg), void* arg) {
  const struct timespec moment = {0, 1000000};
  const time_t give_up_at = time(NULL) + 10;
  while (!condition(arg)) {
    if (time(NULL) > give_up_at) return false;
    nanosleep(&moment, NULL);
  }
  return true;
}

static bool event_is_there(void* arg) { return (*(cmi_event**)arg = CALL0(evt_get)) != NULL; }

cmi_event* next_event(void) {
  cmi_event* event = NULL;
  (void)until(event_is_there, &event);
  return event;
}

void give_back(cmi_event* event) { CMIFN(ctxt, 10, evt_ret)(event, CMI_EVENT_RET_DONE); }

struct start {
  void (*body)(void*);
  void* arg;
};
static void* start_thread(void* arg) {
  const struct start* start = arg;
  start->body(start->arg);
  return NULL;
}
void in_thread(void (*body)(void*), void* arg) {
  struct start start = {body, arg};
  pthread_t thread;
  NEED(pthread_create(&thread, NULL, start_thread, &start) == 0);
  NEED(pthread_join(thread, NULL) == 0);
}

/* ---- A heap that counts ---- */

static pthread_mutex_t heap_lock = PTHREAD_MUTEX_INITIALIZER;

struct block {
  _Alignas(max_align_t) const struct heap* owner;
};

static void* heap_alloc(size_t size, void* arg) {
  struct heap* heap = arg;
  struct block* block = NULL;
  pthread_mutex_lock(&heap_lock);
  ++heap->asked;
  if (!heap->empty) block = malloc(sizeof *block + size);
  if (block != NULL) {
    block->owner = heap;
    ++heap->blocks;
  }
  pthread_mutex_unlock(&heap_lock);
  return block != NULL ? block + 1 : NULL;
}

static void heap_free(void* ptr, void* arg) {
  struct heap* heap = arg;
  struct block* block = (struct block*)ptr - 1;
  pthread_mutex_lock(&heap_lock);
  if (ptr == NULL || block->owner != heap) {
    ++heap->foreign;
  } else {
    --heap->blocks;
    free(block);
  }
  pthread_mutex_unlock(&heap_lock);
}

cmi_cbs callbacks_of(struct heap* heap) {
  cmi_cbs callbacks;
  memset(&callbacks, 0, sizeof callbacks);
  callbacks.alloc = heap_alloc;
  callbacks.free = heap_free;
  callbacks.arg = heap;
  return callbacks;
}
