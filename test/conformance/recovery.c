/* What an importer's death leaves in flux, and its recovery. [cmi(5), Consistent data; libcmi(3),
 * seg_ctl with CMI_SEG_CHECK and CMI_SEG_RECO] */
#include <signal.h>

#include "conform.h"

static cmi_ds check(cmi_seg seg, char* from, size_t bytes) {
  cmi_ds ds;
  memset(&ds, 0, sizeof ds);
  ds.reco.reco_addr = from;
  ds.reco.reco_size = bytes;
  NEED(CALL(seg_ctl, seg, CMI_SEG_CHECK, &ds) == 0);
  return ds;
}
static int recover(cmi_seg seg, char* from, size_t bytes) {
  cmi_ds ds;
  memset(&ds, 0, sizeof ds);
  ds.reco.reco_addr = from;
  ds.reco.reco_size = bytes;
  return CALL(seg_ctl, seg, CMI_SEG_RECO, &ds);
}

static void take_event(int32_t type) {
  cmi_event* event = next_event();
  NEED(event != NULL);
  EXPECT((int32_t)event->type == type);
  give_back(event);
}

struct change {
  const char* word;
  uint64_t before;
};
static bool has_changed(void* arg) {
  const struct change* change = arg;
  return load_word(change->word) != change->before;
}

/* A segment with an importer that stores to its second page without end until it is killed. A death
 * between two stores, with all of them at home, leaves nothing in flux: then another one dies. */
struct scene {
  cmi_seg home;
  char* near;
  struct flat handle, key;
};
static void one_dies(const struct scene* s) {
  struct peer* victim = peer_start("victim");
  const cmi_seg import = peer_seg_imp(victim, &s->handle);
  struct change change;
  uint64_t view;
  NEED(peer_set_token(victim, import, &s->key) == 0);
  view = peer_seg_at(victim, import, 0, 0);
  NEED(view != 0 && peer_cmi_enb(victim, 1) == 0);
  change.word = s->near + UNITS(1);
  change.before = load_word(change.word);
  peer_store_without_end(victim, view + UNITS(1));
  NEED(until(has_changed, &change)); /* it is storing */
  peer_kill(victim);
  take_event(CMI_EVENT_RCTXT_DOWN);
}
static struct scene scene(int32_t flags) {
  struct scene s;
  begin();
  s.home = CALL(seg_get, UNITS(4), flags);
  NEED(s.home > 0);
  s.near = attach(s.home);
  s.handle = export_of(s.home);
  s.key = token_of(s.home, ALL_RIGHTS);
  return s;
}
static struct scene in_flux(void) {
  struct scene s = scene(0);
  int tries = 0;
  do {
    NEED(tries++ < 40);
    one_dies(&s);
  } while (check(s.home, s.near, UNITS(4)).reco.reco_size == 0);
  return s;
}

static void page_in_flux(void) {
  struct scene s = in_flux();
  const struct fault fault = fault_of_load(s.near + UNITS(1) + 8);
  EXPECT(is(fault, CMI_ERROR_CONSIST));
  EXPECT(fault.segment == s.home);
  EXPECT(fault.address == (uint64_t)(uintptr_t)(s.near + UNITS(1) + 8));
  EXPECT(is(fault_of_store(s.near + UNITS(1)), CMI_ERROR_CONSIST));
  EXPECT((status_of(s.home) & CMI_SEG_ST_INCONSIST) != 0);
}
STATEMENT(S_85b679_what_a_dead_node_had_cached_raises) { page_in_flux(); }
STATEMENT(S_fb8602_a_death_marks_lines_in_flux) { page_in_flux(); }
STATEMENT(S_f691ba_processes_at_home_get_an_exception_there) { page_in_flux(); }
STATEMENT(S_802f2d_such_bytes_are_closed_until_recovered) { page_in_flux(); }
STATEMENT(S_78b8e5_the_exception_is_consist) { page_in_flux(); }
STATEMENT(S_dec77c_remote_nodes_get_it_too) {
  struct scene s = in_flux();
  struct peer* other = peer_start("other");
  const cmi_seg import = peer_seg_imp(other, &s.handle);
  uint64_t view;
  NEED(peer_set_token(other, import, &s.key) == 0);
  view = peer_seg_at(other, import, 0, 0);
  NEED(view != 0 && peer_cmi_enb(other, 1) == 0);
  (void)peer_load(other, view + UNITS(1));
  EXPECT(is(peer_fault(other), CMI_ERROR_CONSIST));
  (void)peer_load(other, view);
  EXPECT(is(peer_fault(other), 0));
  EXPECT(recover(s.home, s.near, UNITS(4)) == 0);
  (void)peer_load(other, view + UNITS(1));
  EXPECT(is(peer_fault(other), 0));
}
STATEMENT(S_474740_consist_comes_at_home_and_for_swaps) {
  struct scene s = in_flux();
  EXPECT(is(fault_of_load(s.near + UNITS(1)), CMI_ERROR_CONSIST));
  EXPECT(is(fault_of_cas(s.near + UNITS(1)), CMI_ERROR_CONSIST));
  EXPECT(is(fault_of_cflush(s.near + UNITS(1)), CMI_ERROR_CONSIST));
}

static void recovery(void) {
  struct scene s = in_flux();
  cmi_ds found = check(s.home, s.near, UNITS(4));
  EXPECT(found.reco.reco_addr == s.near + UNITS(1));
  EXPECT(found.reco.reco_size == limits().cache_line_sz);
  EXPECT(recover(s.home, found.reco.reco_addr, found.reco.reco_size) == 0);
  EXPECT(check(s.home, s.near, UNITS(4)).reco.reco_size == 0);
  EXPECT(is(fault_of_load(s.near + UNITS(1)), 0));
  EXPECT((status_of(s.home) & CMI_SEG_ST_INCONSIST) == 0);
}
STATEMENT(S_06d460_clients_recover_with_check_and_reco) { recovery(); }
STATEMENT(S_cac79d_what_raises_is_recovered) { recovery(); }
STATEMENT(S_8ceb7c_the_system_asks_for_recovery) { recovery(); }
STATEMENT(S_95140a_check_finds_the_lowest_range) { recovery(); }
STATEMENT(S_ff7d07_reco_gives_uncertain_lines_back) { recovery(); }
STATEMENT(S_bed7af_what_is_not_recovered_goes_on_raising) {
  struct scene s = in_flux();
  EXPECT(recover(s.home, s.near, UNITS(1)) == 0); /* beside it */
  EXPECT(recover(s.home, s.near + UNITS(2), UNITS(2)) == 0);
  EXPECT(is(fault_of_load(s.near + UNITS(1)), CMI_ERROR_CONSIST));
  EXPECT(recover(s.home, s.near + UNITS(1), UNITS(1)) == 0);
  EXPECT(is(fault_of_load(s.near + UNITS(1)), 0));
}
STATEMENT(S_1bcbb9_reco_takes_a_part_of_what_check_looked_at) {
  struct scene s = in_flux();
  EXPECT(check(s.home, s.near + UNITS(2), UNITS(2)).reco.reco_size == 0);
  EXPECT(check(s.home, s.near + UNITS(1), UNITS(1)).reco.reco_size == UNITS(1));
  EXPECT(recover(s.home, s.near + UNITS(1), UNITS(2)) == 0);
  EXPECT(check(s.home, s.near, UNITS(4)).reco.reco_size == 0);
}

static void whole_lines(int32_t command) {
  struct scene s = scene(0);
  const size_t line = limits().cache_line_sz;
  const struct {
    size_t from, bytes;
  } bad[] = {{8, line}, {0, line - 8}, {0, 0}, {line / 2, line / 2}, {0, 5 * line}};
  size_t i;
  for (i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    cmi_ds ds;
    memset(&ds, 0, sizeof ds);
    ds.reco.reco_addr = s.near + bad[i].from;
    ds.reco.reco_size = bad[i].bytes;
    if (command == CMI_SEG_RECO && bad[i].bytes == 0) { /* as CHECK answers where all is well */
      EXPECT(CALL(seg_ctl, s.home, command, &ds) == 0);
      continue;
    }
    FAILS(CALL(seg_ctl, s.home, command, &ds), -1, CMI_ERR_INVAL);
  }
}
STATEMENT(S_8e6e0a_check_takes_whole_lines) { whole_lines(CMI_SEG_CHECK); }
STATEMENT(S_f4ff58_reco_takes_whole_lines) { whole_lines(CMI_SEG_RECO); }

static void others_do_not_recover(void) {
  struct shared s;
  struct peer* neighbour;
  uint64_t view;
  cmi_ds ds;
  begin();
  s = share(ALL_RIGHTS);
  neighbour = peer_start("home");
  view = peer_seg_at(neighbour, s.home, 0, 0);
  memset(&ds, 0, sizeof ds);
  ds.reco.reco_addr = (void*)(uintptr_t)view;
  ds.reco.reco_size = UNITS(1);
  EXPECT(peer_seg_ctl(neighbour, s.home, CMI_SEG_CHECK, &ds) == -1);
  EXPECT(peer_error(neighbour) == CMI_ERR_PERM);
  EXPECT(peer_seg_ctl(neighbour, s.home, CMI_SEG_RECO, &ds) == -1);
  EXPECT(peer_error(neighbour) == CMI_ERR_PERM);
  ds.reco.reco_addr = (void*)(uintptr_t)s.far;
  EXPECT(peer_seg_ctl(s.peer, s.import, CMI_SEG_RECO, &ds) == -1);
  EXPECT(peer_error(s.peer) == CMI_ERR_PERM);
}
STATEMENT(S_56d49c_recovery_is_at_home_only) { others_do_not_recover(); }
STATEMENT(S_89e908_by_the_segments_maker_only) { others_do_not_recover(); }

/* ---- Clients that keep consistency themselves ---- */

static void nothing_in_flux(bool by_command) {
  struct scene s;
  int i;
  if (by_command) {
    s = scene(0); /* a context; its segment is of the default mode */
    EXPECT(CALL(cmi_ctl, CMI_CTL_CLIENT_CONSIST, NULL) == 0);
    s.home = new_segment(4);
    s.near = attach(s.home);
    s.handle = export_of(s.home);
    s.key = token_of(s.home, ALL_RIGHTS);
  } else {
    s = scene(CMI_SEG_CLIENT_CONSIST);
  }
  for (i = 0; i < 3; ++i) {
    one_dies(&s);
    EXPECT(check(s.home, s.near, UNITS(4)).reco.reco_size == 0);
    EXPECT(is(fault_of_load(s.near + UNITS(1)), 0));
    EXPECT((status_of(s.home) & CMI_SEG_ST_INCONSIST) == 0);
  }
}
STATEMENT(S_0503cc_lines_of_a_consistent_client_stay_accessible) { nothing_in_flux(false); }
STATEMENT(S_708a09_a_flag_says_so_for_one_segment) { nothing_in_flux(false); }
STATEMENT(S_0ce5f5_consistent_clients_need_no_recovery) { nothing_in_flux(false); }
STATEMENT(S_8b6978_a_command_says_that_the_client_keeps_consistency) { nothing_in_flux(true); }
STATEMENT(S_a245a6_a_consistent_client_need_not_recover) { nothing_in_flux(true); }
