/* What version 11 adds: segments of memory that the client has, tokens for parts of segments. Each
 * statement is the one of cmi(5) or libcmi(3) that the new call has to keep as the old ones do. */
#include <sys/mman.h>

#include "conform.h"

#define CALL11(fn, ...) (CMIFN(ctxt, 11, fn)(ctxt, __VA_ARGS__))

static char* own_memory(size_t units) {
  char* memory =
      mmap(NULL, UNITS(units), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(memory != MAP_FAILED);
  return memory;
}

STATEMENT(S_581f12_with_version_10_the_calls_of_11_are_notsupp) {
  char* memory;
  cmi_seg seg;
  ctxt = cmi_ini(10, NULL);
  NEED(ctxt != NULL && ctxt->base.verno == 10);
  memory = own_memory(1);
  FAILS(CALL11(seg_getva, memory, unit(), 0), CMI_SEG_INVALID, CMI_ERR_NOTSUPP);
  seg = new_segment(1);
  FAILS(CALL11(tok_newva, seg, attach(seg), unit(), CMI_NADDR_ANY, CMI_ACC_READ), NULL,
        CMI_ERR_NOTSUPP);
  *memory = 1;
  EXPECT(munmap(memory, UNITS(1)) == 0);
}

/* ---- seg_getva ---- */

/* Four units of this process's memory, imported by a peer. */
struct lent {
  char* memory;
  cmi_seg seg, import;
  struct peer* peer;
  uint64_t far;
};
static struct lent lend(void) {
  struct lent l;
  struct flat handle, token;
  l.memory = own_memory(4);
  store_word(l.memory + UNITS(1), 42);
  l.seg = CALL11(seg_getva, l.memory, UNITS(4), 0);
  NEED(l.seg > 0);
  handle = export_of(l.seg);
  token = token_of(l.seg, ALL_RIGHTS);
  l.peer = peer_start("far");
  l.import = peer_seg_imp(l.peer, &handle);
  NEED(l.import > 0 && peer_set_token(l.peer, l.import, &token) == 0);
  l.far = peer_seg_at(l.peer, l.import, 0, 0);
  NEED(l.far != 0 && peer_cmi_enb(l.peer, 1) == 0);
  return l;
}
STATEMENT(S_211d25_memory_that_the_client_has_is_exported) {
  struct lent l;
  begin();
  l = lend();
  EXPECT(peer_load(l.peer, l.far + UNITS(1)) == 42);
  peer_store(l.peer, l.far + UNITS(2), 43);
  EXPECT(peer_wmb(l.peer) == 0);
  EXPECT(load_word(l.memory + UNITS(2)) == 43);
  store_word(l.memory + UNITS(1), 44);
  EXPECT(CALL0(wmb_fn) == 0);
  EXPECT(peer_load(l.peer, l.far + UNITS(1)) == 44);
}
STATEMENT(S_ee6bd6_it_is_a_view_and_seg_dt_gives_it_back) {
  struct lent l;
  begin();
  l = lend();
  peer_store(l.peer, l.far + UNITS(2), 43);
  EXPECT(peer_wmb(l.peer) == 0);
  EXPECT(CALL(seg_dt, l.seg, l.memory) == 0);
  EXPECT(load_word(l.memory + UNITS(1)) == 42 && load_word(l.memory + UNITS(2)) == 43);
  store_word(l.memory + UNITS(1), 99); /* the client's alone from now on */
  EXPECT(CALL0(wmb_fn) == 0);
  EXPECT(peer_load(l.peer, l.far + UNITS(1)) != 99);
  EXPECT(munmap(l.memory, UNITS(4)) == 0);
}
STATEMENT(S_34b581_what_the_client_maps_there_anew_nobody_reaches) {
  struct lent l;
  char* anew;
  begin();
  l = lend();
  anew = mmap(l.memory + UNITS(1), UNITS(1), PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  NEED(anew == l.memory + UNITS(1));
  store_word(anew, 99);
  EXPECT(CALL0(wmb_fn) == 0);
  EXPECT(peer_load(l.peer, l.far + UNITS(1)) == 42);
  peer_store(l.peer, l.far + UNITS(1), 7);
  EXPECT(peer_wmb(l.peer) == 0);
  EXPECT(load_word(anew) == 99);
  EXPECT(load_word(l.memory) == 0); /* the rest is the segment's as before */
}
STATEMENT(E_seg_get_CMI_ERR_INVAL_memory_that_is_none) {
  char* memory;
  cmi_seg seg;
  begin();
  memory = own_memory(2);
  FAILS(CALL11(seg_getva, NULL, UNITS(1), 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  FAILS(CALL11(seg_getva, memory, 0, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  FAILS(CALL11(seg_getva, memory + 1, UNITS(1), 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  FAILS(CALL11(seg_getva, memory, UNITS(1) + 1, 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  NEED(munmap(memory + UNITS(1), UNITS(1)) == 0);
  FAILS(CALL11(seg_getva, memory, UNITS(2), 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  seg = CALL11(seg_getva, memory, UNITS(1), 0);
  EXPECT(seg > 0);
  FAILS(CALL11(seg_getva, memory, UNITS(1), 0), CMI_SEG_INVALID, CMI_ERR_INVAL);
  EXPECT(CALL(seg_dt, seg, memory) == 0);
  EXPECT(munmap(memory, UNITS(1)) == 0);
}

/* ---- tok_newva ---- */

STATEMENT(S_537d29_a_token_can_be_for_a_part) {
  cmi_seg seg;
  char* view;
  struct flat handle, token;
  struct peer* peer;
  cmi_seg import;
  uint64_t far;
  begin();
  seg = new_segment(4);
  view = attach(seg);
  handle = export_of(seg);
  token = copy(CALL11(tok_newva, seg, view + UNITS(1), UNITS(2), CMI_NADDR_ANY, ALL_RIGHTS),
               attribute(seg, CMI_ATTR_TOKEN_SIZE));
  peer = peer_start("far");
  import = peer_seg_imp(peer, &handle);
  NEED(import > 0 && peer_set_token(peer, import, &token) == 0 && peer_cmi_enb(peer, 1) == 0);
  far = peer_seg_at(peer, import, 0, 0);
  NEED(far != 0);
  peer_store(peer, far + UNITS(1), 1);
  peer_store(peer, far + UNITS(3) - 8, 2);
  EXPECT(!peer_fault(peer).caught && peer_wmb(peer) == 0);
  EXPECT(load_word(view + UNITS(1)) == 1 && load_word(view + UNITS(3) - 8) == 2);
  (void)peer_load(peer, far + UNITS(1) - 8);
  EXPECT(is(peer_fault(peer), CMI_ERROR_ACCESS));
  peer_store(peer, far + UNITS(3), 3);
  EXPECT(is(peer_fault(peer), CMI_ERROR_ACCESS));
  EXPECT(load_word(view + UNITS(3)) == 0);
}
STATEMENT(S_5714d2_the_rights_of_a_part_are_its_tokens) {
  struct loop l;
  struct flat token;
  begin();
  l = loop();
  token = copy(CALL11(tok_newva, l.home, l.near, UNITS(1), CMI_NADDR_ANY, CMI_ACC_READ),
               attribute(l.home, CMI_ATTR_TOKEN_SIZE));
  EXPECT(set_token(l.import, &token) == 0);
  EXPECT(!fault_of_load(l.far).caught);
  EXPECT(is(fault_of_store(l.far), CMI_ERROR_ACCESS));
  EXPECT(is(fault_of_cas(l.far), CMI_ERROR_ACCESS));
  EXPECT(is(fault_of_load(l.far + UNITS(1)), CMI_ERROR_ACCESS));
}
STATEMENT(S_10567e_a_second_one_for_a_node_is_bound_also_for_a_part) {
  struct flat node;
  cmi_naddr* address;
  cmi_seg seg;
  char* view;
  begin();
  node = peer_naddr(peer_start("far"));
  address = (cmi_naddr*)(void*)node.bytes;
  seg = new_segment(4);
  view = attach(seg);
  EXPECT(CALL11(tok_newva, seg, view, UNITS(1), address, CMI_ACC_READ) != NULL);
  FAILS(CALL11(tok_newva, seg, view + UNITS(2), UNITS(1), address, CMI_ACC_READ), NULL,
        CMI_ERR_BOUND);
  FAILS(CALL(tok_new, seg, address, CMI_ACC_READ), NULL, CMI_ERR_BOUND);
}
STATEMENT(E_tok_new_CMI_ERR_INVAL_a_part_that_is_none) {
  cmi_seg seg;
  char* view;
  begin();
  seg = new_segment(4);
  view = attach(seg);
  FAILS(CALL11(tok_newva, seg, view, 0, CMI_NADDR_ANY, CMI_ACC_READ), NULL, CMI_ERR_INVAL);
  FAILS(CALL11(tok_newva, seg, view + 1, UNITS(1), CMI_NADDR_ANY, CMI_ACC_READ), NULL,
        CMI_ERR_INVAL);
  FAILS(CALL11(tok_newva, seg, view + UNITS(1), UNITS(4), CMI_NADDR_ANY, CMI_ACC_READ), NULL,
        CMI_ERR_INVAL);
  FAILS(CALL11(tok_newva, seg, NULL, UNITS(1), CMI_NADDR_ANY, CMI_ACC_READ), NULL, CMI_ERR_INVAL);
}
